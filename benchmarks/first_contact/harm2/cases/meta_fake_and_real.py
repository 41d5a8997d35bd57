"""Models on the meta device, under FakeTensorMode, moved by to_empty, beside a real one that trains.

Source: https://github.com/pytorch/pytorch/pull/89726
"""
# PRELUDE
from torch._subclasses.fake_tensor import FakeTensorMode
with torch.device("meta"): k = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
W(k); o = k(torch.ones(3, 8, device="meta")); o.sum().backward(); print(o.device, o.shape, k[0].weight.grad.device)
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
with FakeTensorMode(allow_non_fake_inputs=True) as f:
    a = nn.Linear(8, 4); z = a(torch.ones(5, 8)); print(type(z).__name__, z.shape, z.device); z.sum().backward(); print(type(m(torch.ones(2, 8))).__name__)
k = k.to_empty(device="cpu"); torch.manual_seed(1)
for l in k:
    if hasattr(l, "reset_parameters"): l.reset_parameters()
print(train(k, torch.optim.SGD(k.parameters(), 0.1), 3), M(k), train(m, opt, 2), M(m), R())
