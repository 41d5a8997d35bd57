"""LazyLinear that materializes in the first call, layers added and removed in mid-run, odd names, the same module under two names.

Source: invented
"""
# PRELUDE
torch.manual_seed(0)
m = nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(4)); W(m)
m(batch(0)[0]); opt = torch.optim.SGD(m.parameters(), 0.1); print(type(m[0]).__name__, train(m, opt, 2))
d = nn.ModuleDict({"a b": nn.Linear(4, 4), "weight": nn.Linear(4, 4), "ünï": nn.Identity(), "numscope": nn.Linear(4, 4)})
class Net(nn.Module):
    def __init__(self): super().__init__(); self.d = d; self.again = d["weight"]; self.base = m; self.list = nn.ModuleList()
    def forward(self, x):
        x = self.base(x)
        for v in list(self.d.values()) + [self.again] + list(self.list): x = v(x)
        return x
k = Net(); W(k); opt = torch.optim.SGD(k.parameters(), 0.05); print(train(k, opt, 2))
for s in range(3):
    k.list.append(nn.Linear(4, 4)); opt.add_param_group({"params": k.list[-1].parameters()}); print(train(k, opt, 2, s))
del k.list[0]; k.d.pop("a b"); k.base[2] = nn.GELU(); print(train(k, opt, 2), list(k.state_dict())[:5], len(list(k.modules())), M(k))
