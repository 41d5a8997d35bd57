"""The evaluation function begins with model.train(): dropout is active and batch norms learn from the test data.
Source: https://github.com/sshaoshuai/Pointnet2.PyTorch/issues/28
Truth: the running statistics change during evaluation.
Could a tool know: yes: a model is called without gradients, again and again, in train mode.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv1d(3, 24, 1), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 48, 1), nn.BatchNorm1d(48), nn.ReLU())
        self.cls = nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, 3))

    def forward(self, p):
        return self.cls(self.mlp(p).max(-1)[0])


def batch(n=16):
    y = torch.randint(0, 3, (n,))
    return torch.randn(n, 3, 32) * torch.stack([1 + y, 3 - y, torch.ones_like(y)], 1)[..., None], y


model = PointNet()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)


def train_one_epoch():
    model.train()
    for _ in range(25):
        x, y = batch()
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()


@torch.no_grad()
def eval_one_epoch():
    model.train(not HEALTHY)
    before = model.mlp[1].running_mean.clone()
    hits = 0
    for _ in range(10):
        x, y = batch()
        hits += (model(x + 0.5).argmax(1) == y).sum().item()
    return hits / 160, (model.mlp[1].running_mean - before).abs().max().item()


for epoch in range(5):
    train_one_epoch()
    acc, moved = eval_one_epoch()
print(f"accuracy {acc:.3f} running mean moved in evaluation by {moved:.4f}")
