"""copy.deepcopy and copy.copy of models, optimizers and outputs at many moments, also inside forward and hooks; copies are trained on their own.

Source: https://github.com/pytorch/pytorch/issues/54580
"""
# PRELUDE
import copy
copies = []
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.take = False
    def forward(self, x):
        y = self.l(x)
        if self.take: self.take = False; copies.append(copy.deepcopy(self))
        return y
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2); print(train(m, opt, 1))
copies.append(copy.deepcopy(m)); m.take = True; train(m, opt, 1)
h = m.l.register_forward_hook(lambda mod, a, o: copies.append(copy.deepcopy(mod)) if len(copies) < 4 else None); train(m, opt, 2); h.remove()
hb = m.l.weight.register_hook(lambda g: copies.append(copy.copy(m)) if len(copies) < 5 else None); train(m, opt, 1); hb.remove()
mm, oo = copy.deepcopy((m, opt)); copies.append(mm); print(train(mm, oo, 3), M(mm), oo.param_groups[0]["params"][0] is mm.l.weight, M(m))
for c in copies: print(type(c).__name__, M(c), sorted(vars(c)) == sorted(vars(nn.Linear(1, 1)) if isinstance(c, nn.Linear) else vars(m)), train(c, torch.optim.SGD(c.parameters(), 0.1), 2) if c is not m else 0)
try:
    copy.deepcopy(m(batch(0)[0]))
except RuntimeError as e: print(str(e)[:40])
print(M(m), train(m, opt, 2))
