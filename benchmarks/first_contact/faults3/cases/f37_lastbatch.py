"""makemore's batch normalization written by hand, with running statistics; the last batch of the epoch has one sample.
Source: karpathy/makemore#22, torch/nn#1271, pytorch/pytorch#1381."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(37)
CURED = "--cured" in sys.argv


class BatchNorm1d(nn.Module):
    def __init__(self, dim, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0, keepdim=True), x.var(0, keepdim=True, unbiased=not CURED)  # FAULT
            with torch.no_grad():
                self.running_mean.lerp_(mean[0], self.momentum)
                self.running_var.lerp_(var[0], self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        return self.gamma * (x - mean) / torch.sqrt(var + self.eps) + self.beta


words = ["emma", "olivia", "ava", "isabella", "sophia", "charlotte", "mia", "amelia", "harper", "evelyn", "abigail"]
xs, ys = [], []
for w in words:
    context = [0] * 3
    for ch in w + ".":
        ix = 0 if ch == "." else ord(ch) - 96
        xs.append(context)
        ys.append(ix)
        context = context[1:] + [ix]
X, Y = torch.tensor(xs)[:73], torch.tensor(ys)[:73]


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(27, 10)
        self.l1, self.bn, self.l2 = nn.Linear(30, 64, bias=False), BatchNorm1d(64), nn.Linear(64, 27)

    def forward(self, x):
        return self.l2(torch.tanh(self.bn(self.l1(self.emb(x).flatten(1)))))


model = MLP()
losses, step = [], 0
for epoch in range(2):
    for xb, yb in zip(X.split(8), Y.split(8)):
        loss = F.cross_entropy(model(xb), yb)
        for p in model.parameters():
            p.grad = None
        loss.backward()
        for p in model.parameters():
            p.data += -0.1 * p.grad
        losses.append(loss.item())
        step += 1
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in model.state_dict().values()))
