"""Opacus with fast (ghost) gradient clipping: hooks on layers, a loss object that runs backward twice, noise from a generator of its own."""
# PRELUDE
import warnings

warnings.filterwarnings("ignore")
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
data = TensorDataset(torch.cat([batch(i)[0] for i in range(8)]), torch.cat([batch(i)[1].argmax(1) for i in range(8)]))
engine = PrivacyEngine()
crit = nn.CrossEntropyLoss()
m2, opt, crit, loader = engine.make_private(module=m, optimizer=opt, data_loader=DataLoader(data, batch_size=8), criterion=crit, noise_multiplier=0.8, max_grad_norm=1.0, grad_sample_mode="ghost", poisson_sampling=False, noise_generator=torch.Generator().manual_seed(5))
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        loss = crit(m2(x), y)
        loss.backward()
        opt.step()
    print(epoch, float(loss.item()).hex(), M(m), type(m2).__name__)
print(round(engine.get_epsilon(1e-5), 6), sorted(dict(m2.state_dict()))[:2], R())
