"""Lazy modules: watched before their first call, materialised by a dry run in float64 or under autocast, parameters replaced, layers added while it trains."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
seed(52)
net = nn.Sequential(nn.LazyConv1d(8, 3), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(2))
watch(net)
print([type(p).__name__ for p in net.parameters()][:3])
with torch.no_grad():
    net.eval()
    net(torch.zeros(2, 3, 10))
    net.train()
print([tuple(p.shape) for p in net.parameters()], type(net[0]).__name__)
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for step in range(18):
    if step == 6:
        new = nn.Linear(2, 2, bias=False)
        nn.init.eye_(new.weight)
        net.append(new)
        opt.add_param_group({"params": new.parameters(), "lr": 0.01})
    if step == 12:
        w = net[4]
        grown = nn.Linear(w.in_features, 20)
        with torch.no_grad():
            grown.weight[:16], grown.bias[:16] = w.weight, w.bias
            grown.weight[16:] = 0
        net[4] = grown
        out = nn.Linear(20, 2)
        net[6] = out
        opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    loss = F.cross_entropy(net(torch.randn(8, 3, 10)), torch.randint(0, 2, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss), len(list(net.parameters())))
end(net, opt)
