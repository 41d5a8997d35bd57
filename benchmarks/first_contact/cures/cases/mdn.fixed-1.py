import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/keras-team/keras/issues/1061
class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__(); self.h = nn.Linear(1, 16); self.pi = nn.Linear(16, k); self.mu = nn.Linear(16, k); self.ls = nn.Linear(16, k)
    def forward(self, x, y):
        h = torch.tanh(self.h(x)); pi = self.pi(h).softmax(1); mu = self.mu(h); sig = self.ls(h).exp()
        pdf = torch.exp(-0.5 * ((y - mu) / sig) ** 2) / (sig * math.sqrt(2 * math.pi))
        return -torch.log((pi * pdf).sum(1).clamp_min(1e-6)).mean()
model = MDN(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x = torch.rand(8, 1); y = torch.sin(6 * x) + 0.1 * torch.randn(8, 1)
    if step == 5: y[0] = 60.
    loss = model(x, y); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
