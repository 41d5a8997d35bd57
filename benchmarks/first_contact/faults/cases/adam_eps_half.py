"""Adam on float16 parameters: eps = 1e-8 is 0 in float16, and a parameter without gradient gets 0/0.
Source: pytorch/pytorch#26218, #147437, afiaka87/glide-finetune#5, google-deepmind/optax#1769."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(32, 4)).half()
opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-4 if CURED else 1e-8)
for step in range(3):
    loss = nn.functional.cross_entropy(net(torch.randint(0, 10, (6, 4))).float(), torch.randint(4, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()  # FAULT
    print(step, loss.item())
