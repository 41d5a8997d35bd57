"""detect_anomaly and error_if_nonfinite: the script catches the error of a batch with a bad gradient, clears the gradients and goes on (ultralytics' step)."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
seed(113)
net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2))
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
caught = []
for step in range(24):
    x = torch.randn(8, 5)
    bad = step % 6 == 3
    opt.zero_grad()
    try:
        with torch.autograd.set_detect_anomaly(step % 12 < 6, check_nan=True):
            o = net(x)
            d = (o - o.detach() * (1.0 if bad else 0.0)).pow(2).sum(1)
            loss = d.sqrt().mean()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
        opt.step()
    except RuntimeError as e:
        caught.append(str(e)[:60])
        opt.zero_grad()
    print(step, dig(loss))
print(caught)
end(net, opt)
