import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/pytorch/pytorch/issues/2421
class Enc(nn.Module):
    def __init__(self):
        super().__init__(); self.fc = nn.Linear(10, 16, bias=False); self.fc2 = nn.Linear(16, 8, bias=False)
    def forward(self, x):
        z = self.fc2(F.relu(self.fc(x)))
        return z / z.norm(dim=1, keepdim=True)
model = Enc(); opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(8, 10)
    if step == 3: x[5] = 0           # an empty item
    z, w = model(x), model(x + 0.1 * torch.randn_like(x))
    loss = F.cross_entropy(z @ w.T / 0.1, torch.arange(8)); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
