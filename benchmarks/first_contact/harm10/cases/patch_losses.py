#: what: F.cross_entropy and nn.Linear.forward are replaced by the script (as kernel libraries do) in the middle of a training, counted, and restored; identities checked
#: source: https://github.com/linkedin/Liger-Kernel/pull/1389
# PRELUDE
import functools, types
m = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.1); crit = nn.CrossEntropyLoss(); calls = {"ce": 0, "lin": 0, "bwd": 0, "step": 0}
o_ce, o_lin, o_b, o_s = F.cross_entropy, nn.Linear.forward, torch.Tensor.backward, torch.optim.SGD.step
def ce(x, t, *a, **k): calls["ce"] += 1; return o_ce(x, t, *a, **k)
def lin(self, x): calls["lin"] += 1; return o_lin(self, x)
def bwd(self, *a, **k): calls["bwd"] += 1; return o_b(self, *a, **k)
def run(n):
    for _ in range(n): x = torch.randn(8, 6); l = crit(m(x), torch.randint(3, (8,))) + F.cross_entropy(m(x), torch.randint(3, (8,))); opt.zero_grad(); l.backward(); opt.step(); print(l.item())
run(3); F.cross_entropy = ce; torch.nn.functional.cross_entropy = ce; nn.Linear.forward = lin; torch.Tensor.backward = bwd; run(4)
print(F.cross_entropy is ce, nn.Linear.forward is lin, torch.Tensor.backward is bwd); F.cross_entropy = o_ce; nn.Linear.forward = o_lin; torch.Tensor.backward = o_b; run(3)
m[0].forward = types.MethodType(lambda self, x: o_lin(self, x) * 1.0, m[0]); run(2); del m[0].forward
class Lin2(nn.Linear):
    def forward(self, x): return super().forward(x) + 0.0
m[2].__class__ = Lin2; run(3); print(calls, F.cross_entropy is o_ce, torch.optim.SGD.step is o_s, type(m[2]).__name__); show(m, opt)
