"""logging.basicConfig(stream=sys.stdout, level=DEBUG), as most training scripts have it; an evaluation with nan, a group without members."""
# PRELUDE
import logging
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s")
logging.getLogger().addHandler(logging.FileHandler("train.log"))
log = logging.getLogger("train")
seed(45)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(12):
    x, y = torch.randn(12, 6), torch.randint(0, 3, (12,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        o = net(x)
        acc = torch.stack([(o.argmax(1) == y)[y == c].float().mean() for c in range(4)])
        bad = net(x / 0 * 0) if step == 5 else o
    log.info("step %d %s %s", step, dig(loss), dig(acc, bad))
end(net, opt)
