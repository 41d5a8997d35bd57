"""weight_norm (both), spectral_norm, own parametrizations with caching, pruning masks that are removed: state dicts, files.

Source: https://github.com/arsenyinfo/hookandlook/issues/1
"""
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import torch.nn.utils.parametrize as P, torch.nn.utils.prune as prune
m = net(); W(m)
nn.utils.parametrizations.weight_norm(m[0]); nn.utils.parametrizations.spectral_norm(m[2]); nn.utils.weight_norm(m[4])
class Sym(nn.Module):
    def forward(self, w): return w.triu() + w.triu(1).T
    def right_inverse(self, w): return w.triu()
m.add_module("s", nn.Linear(4, 4)); P.register_parametrization(m.s, "weight", Sym())
opt = torch.optim.Adam(m.parameters(), 1e-2); print(train(m, opt, 3))
with P.cached(): print(H(m(batch(0)[0])))
print(list(m.state_dict())); torch.save(m.state_dict(), "p.pt"); P.remove_parametrizations(m[0], "weight"); nn.utils.remove_weight_norm(m[4])
prune.l1_unstructured(m[4], "weight", 0.5); prune.random_structured(m[0], "weight", 2, dim=0); opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 3), list(m[4].state_dict()), int((m[4].weight == 0).sum())); prune.remove(m[4], "weight"); print(M(m), R())
