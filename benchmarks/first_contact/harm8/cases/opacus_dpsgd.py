# what: DP-SGD by opacus: per-sample gradients by hooks, noise from a generator, empty Poisson batches
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
model = net(); W(model); gm = GradSampleModule(model); opt = DPOptimizer(torch.optim.SGD(gm.parameters(), lr=.1), noise_multiplier=.5, max_grad_norm=1., expected_batch_size=6, generator=torch.Generator().manual_seed(5))
for s in range(5):
    x, y = batch(s)
    opt.zero_grad(); l = F.mse_loss(gm(x), y); l.backward(); print(float(l.detach()).hex(), H([p.grad_sample for p in gm.parameters()])); opt.step(); print(M(model))
print(H(opt.state_dict()), R())
