"""Opacus: per-sample gradients by its own hooks, Poisson sampling with batches of varying size, noise from a seeded generator, clipping; privacy accountant's epsilon."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

m = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 16), nn.GroupNorm(4, 16), nn.Tanh(), nn.Linear(16, 3))
g = torch.Generator().manual_seed(4)
data = TensorDataset(torch.randn(48, 1, 8, generator=g), torch.randint(0, 3, (48,), generator=g))
opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)
engine = PrivacyEngine()
m, opt, loader = engine.make_private(module=m, optimizer=opt, data_loader=DataLoader(data, batch_size=8), noise_multiplier=1.1, max_grad_norm=1.0,
                                     noise_generator=torch.Generator().manual_seed(9))
W(m)
m.train()
for epoch in range(2):
    sizes = []
    for x, y in loader:
        if not len(x):
            continue
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        sizes.append((len(x), tuple(next(m.parameters()).grad_sample.shape)))
        opt.step()
    print(epoch, sizes, loss.item().hex(), M(m))
print(engine.get_epsilon(1e-5).hex(), R(), len(m.autograd_grad_sample_hooks) if hasattr(m, "autograd_grad_sample_hooks") else None)
m.remove_hooks()
print(sorted(type(x).__name__ for x in m.modules()))
