# The gradient of a root at zero, in a loss whose graph is too long for each of its operations to be followed.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(3):
    kept = []
    for _ in range(150):
        choice = torch.distributions.Categorical(logits=net(torch.randn(1, 4)))
        kept.append(choice.log_prob(choice.sample()))
    spread = torch.stack(kept)
    spread = spread - (spread.detach() if step == 2 else 0.0)
    loss = (spread * spread).sqrt().sum()  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
