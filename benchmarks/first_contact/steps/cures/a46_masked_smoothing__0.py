import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 6)

    def forward(self, x, target, allowed):
        logp = self.net(x).masked_fill(~allowed, float("-inf")).log_softmax(-1)
        smooth = (F.one_hot(target, 6).float() * 0.9 + 0.1 / 6) * allowed
        return -(smooth * logp).sum(-1)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x, target, allowed = torch.randn(8, 8), torch.randint(0, 4, (8,)), torch.ones(8, 6, dtype=torch.bool)
    if step == 2:
        allowed[5, 5] = False
    if step == 2: x = x[[i for i in range(len(x)) if i not in (5,)]]; target = target[[i for i in range(len(target)) if i not in (5,)]]; allowed = allowed[[i for i in range(len(allowed)) if i not in (5,)]]
    loss = model(x, target, allowed).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
