# what: iterative pruning by torch.nn.utils.prune (pre-hooks), old weight_norm and spectral_norm, parametrizations, removed in the middle
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from torch.nn.utils import prune, weight_norm, spectral_norm, remove_weight_norm, parametrize, parametrizations as P
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), weight_norm(nn.Linear(16, 16)), nn.ReLU(), spectral_norm(nn.Linear(16, 16)), P.orthogonal(nn.Linear(16, 16)), nn.Linear(16, 4)); W(model)
for r in range(4):
    if r < 3: prune.l1_unstructured(model[0], "weight", .2); prune.ln_structured(model[6], "weight", .25, n=2, dim=0)
    if r == 2: remove_weight_norm(model[2]); prune.global_unstructured([(model[0], "weight"), (model[2], "weight")], prune.L1Unstructured, amount=.3)
    if r == 3: prune.remove(model[0], "weight"); prune.remove(model[6], "weight"); parametrize.remove_parametrizations(model[5], "weight")
    opt = torch.optim.SGD(model.parameters(), lr=.05); print(train(model, opt, 3, 3 * r), M(model), [type(h).__name__ for h in model[0]._forward_pre_hooks.values()], sorted(model.state_dict()))
    with parametrize.cached(): print(train(model, opt, 1, 50 + r)); model.eval(); print(H(model(batch(60)[0]).detach())); model.train()
torch.save(model.state_dict(), "p.pt"); print(R())
