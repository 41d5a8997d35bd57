"""A handler on the root logger counts and refuses warnings (a strict CI run): anything at WARNING raises or is an error at the end; nan in an evaluation."""
# PRELUDE
import logging
seed(110)
seen = []


class Strict(logging.Handler):
    def emit(self, r):
        if r.levelno >= logging.WARNING:
            seen.append(r.name)
            raise RuntimeError("a warning in a strict run")


logging.getLogger().addHandler(Strict())
logging.getLogger().setLevel(logging.INFO)
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(10):
    x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(x / 0) if step == 4 else net(x)
    logging.info("step %d", step)
    print(step, dig(loss, e))
end(net, opt)
print(len(seen))
sys.exit(1 if seen else 0)
