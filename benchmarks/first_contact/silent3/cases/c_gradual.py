"""Healthy: gradual unfreezing from the head down (add_param_group each time), discriminative rates, frozen batch norms in eval mode, and a
partial checkpoint loaded on purpose (strict=False, the head is new)."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.l1 = nn.Sequential(nn.Conv1d(1, 12, 5, padding=2), nn.BatchNorm1d(12), nn.ReLU())
        self.l2 = nn.Sequential(nn.Conv1d(12, 12, 5, padding=2), nn.BatchNorm1d(12), nn.ReLU())
        self.l3 = nn.Sequential(nn.Conv1d(12, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        self.classes, self.k = nn.Linear(16, classes), classes

    def forward(self, x):
        return self.classes(self.l3(self.l2(self.l1(x))).mean(-1))


def batch(k):
    y = torch.randint(0, k, (32,))
    t = torch.linspace(0, 6.28, 32)
    return torch.sin(t * (y[:, None] + 1) + 6 * torch.rand(32, 1))[:, None] + 0.3 * torch.randn(32, 1, 32), y


def step(m, opt, k):
    x, y = batch(k)
    loss = nn.functional.cross_entropy(m(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


pre = Net(3)
opt = torch.optim.Adam(pre.parameters(), lr=3e-3)
for _ in range(80):
    step(pre, opt, 3)
state = {k: v for k, v in pre.state_dict().items() if not k.startswith("classes")}
model = Net(5)
missing = model.load_state_dict(state, strict=False)
for l in (model.l1, model.l2, model.l3):
    l.requires_grad_(False)
opt = torch.optim.AdamW(model.classes.parameters(), lr=5e-3)
for phase, layer in enumerate([None, model.l3, model.l2, model.l1]):
    if layer is not None:
        layer.requires_grad_(True)
        opt.add_param_group({"params": layer.parameters(), "lr": 2e-3 / 2**phase})
    for _ in range(110):
        model.train()
        for l in (model.l1, model.l2, model.l3):
            if not l[0].weight.requires_grad:
                l.eval()
        loss = step(model, opt, 5)
print(f"loss {loss:.3f} missing {missing.missing_keys}")
