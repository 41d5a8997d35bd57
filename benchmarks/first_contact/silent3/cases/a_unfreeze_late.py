"""The optimizer was made with the parameters that were trainable then; the backbone is unfrozen after 60 steps and is in no optimizer.
Source: https://github.com/fastai/fastai/issues/2133
Truth: the backbone's weights are their first bits at the end.
Could a tool know: yes: trainable parameters get gradients and are in no optimizer.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(1, 12, 5), nn.ReLU(), nn.Conv1d(12, 12, 5), nn.ReLU())
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.backbone(x).mean(-1))


model = Net()
for p in model.backbone.parameters():
    p.requires_grad = False
before = model.backbone[0].weight.detach().clone()
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=3e-3)
for step in range(240):
    if step == 60:
        for p in model.backbone.parameters():
            p.requires_grad = True
        if HEALTHY:
            opt.add_param_group({"params": model.backbone.parameters(), "lr": 1e-3})
    y = torch.randint(0, 3, (32,))
    t = torch.linspace(0, 6.28, 40)
    x = torch.sin(t * (y[:, None] + 1) + 6 * torch.rand(32, 1))[:, None] + 0.3 * torch.randn(32, 1, 40)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} backbone moved {(model.backbone[0].weight - before).abs().max():.2e}")
