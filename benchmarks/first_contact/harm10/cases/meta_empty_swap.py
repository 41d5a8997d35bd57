#: what: a model built on the meta device, to_empty (filled with nan in deterministic mode), weights assigned from a state dict, dtype changed to float64 and back in the middle of a training, parametrizations added and removed
#: benign: nan weights between to_empty and load_state_dict
#: source: https://github.com/pytorch/pytorch/pull/101849
# PRELUDE
import torch.nn.utils.parametrize as P
torch.use_deterministic_algorithms(True); src = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2)).state_dict()
with torch.device("meta"): m = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2))
m.to_empty(device="cpu"); print(all(torch.isnan(p).all().item() for p in m.parameters())); watch(m); m.load_state_dict({k: v.clone() for k, v in src.items()}, assign=True); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
class Sym(nn.Module):
    def forward(self, w): return w / (1e-6 + w.norm()) * 2
    def right_inverse(self, w): return w
def run(n, dt=torch.float32):
    for s in range(n): x = torch.randn(8, 5, dtype=dt); l = F.cross_entropy(m(x), (x[:, 0] > 0).long()); opt.zero_grad(); l.backward(); opt.step(); print(l.item())
run(4); m.double(); opt = torch.optim.Adam(m.parameters(), 1e-2); run(3, torch.float64); m.float(); opt = torch.optim.SGD(m.parameters(), 0.05); run(2)
P.register_parametrization(m[0], "weight", Sym()); opt = torch.optim.SGD(m.parameters(), 0.05); run(3); P.remove_parametrizations(m[0], "weight"); opt = torch.optim.SGD(m.parameters(), 0.05); run(2); show(m, opt); torch.save(m, "m.pt"); print(type(m[0]).__name__)
