# The sign and logarithm of a determinant between an agent's acts, after more of them than are recorded operation by operation.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(3):
    scores = []
    for act in range(12):
        seen = net(torch.randn(4, 4)) * (act != 10 or step != 2)
        volume = torch.linalg.slogdet(seen)  # FAULT
        scores.append(volume[1].clamp(-9.0))
        size = volume.logabsdet.exp() * volume[1]
        scores.append(size)
    opt.zero_grad()
    torch.stack(scores).mean().backward()
    opt.step()
