# what: layers added, replaced, deleted and frozen between and within steps; add_param_group; modules swapped by setattr in the forward; tied then untied
# PRELUDE
class Grow(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.ModuleList([nn.Linear(8, 8)]); self.o = nn.Linear(8, 4); self.k = 0
    def forward(self, x):
        self.k += 1
        if self.k == 5: self.side = nn.Linear(8, 8)
        for f in self.l: x = x + torch.tanh(f(x))
        if hasattr(self, "side"): x = self.side(x)
        return self.o(x)
m = Grow(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for r in range(6):
    if r == 1: m.l.append(nn.Linear(8, 8)); opt.add_param_group({"params": m.l[-1].parameters(), "lr": .1})
    if r == 2: m.l.append(m.l[0])
    if r == 3: m.l[0].requires_grad_(False); m.l[2] = nn.Linear(8, 8); opt.add_param_group({"params": m.l[2].parameters()})
    if r == 4: del m.l[1]; m.o = nn.utils.parametrizations.weight_norm(m.o); opt = torch.optim.SGD((p for p in m.parameters() if p.requires_grad), lr=.05)
    if r == 5: del m.side; m.k = -100; m.l[0].weight = nn.Parameter(torch.eye(8)); m.register_parameter("dead", None); m.add_module("none", None)
    print(train(m, opt, 2, 2 * r), len(list(m.named_modules())), M(m))
print(R())
