"""np.seterr(all='raise'), warnings as errors, decimal traps, a strict locale: the settings of a careful script; metrics of nan are computed in torch."""
# PRELUDE
import warnings, decimal
seed(34)
np.seterr(all="raise")
warnings.simplefilter("error")
decimal.getcontext().traps[decimal.Inexact] = True
torch.set_printoptions(profile="full", sci_mode=True, linewidth=20)
np.set_printoptions(threshold=0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(20):
    x, y = torch.randn(12, 6), torch.randint(0, 3, (12,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        o = net(x * 0) if step % 5 else net(x * torch.inf)
        per = torch.stack([(o.argmax(1) == y)[y == c].float().mean() for c in range(4)])
        tiny = net(x * 1e-38) * 1e-30
    print(step, dig(loss, per, o, tiny), int(per.isnan().sum()))
try:
    np.log(np.zeros(1))
except FloatingPointError as e:
    print("still raises", e)
end(net, opt)
