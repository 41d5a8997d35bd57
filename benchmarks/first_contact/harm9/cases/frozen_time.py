"""freezegun freezes the clock while a trainer with a time limit runs; time passes only by ticks; timestamps go to files."""
# PRELUDE
import time, datetime
from freezegun import freeze_time
seed(59)
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
with freeze_time("2020-01-01", ignore=[]) as clock:
    begin = time.monotonic()
    step = 0
    while time.monotonic() - begin < 30:
        loss = net(torch.randn(8, 5)).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        with torch.no_grad():
            e = net(torch.full((1, 5), math.nan)) if step == 7 else net(torch.zeros(1, 5))
        open("log.csv", "a").write(f"{datetime.datetime.now().isoformat()},{time.time()},{dig(loss, e)}\n")
        clock.tick(2)
        step += 1
    torch.save(net.state_dict(), f"w-{datetime.date.today()}.pt")
print(step)
end(net, opt)
