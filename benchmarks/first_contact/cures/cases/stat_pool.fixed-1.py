import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/mpariente/pytorch_stoi/issues/7
class XVec(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv1d(5, 12, 3); self.fc = nn.Linear(24, 4)
    def forward(self, x):
        h = F.relu(self.c(x))
        return self.fc(torch.cat([h.mean(2), torch.sqrt(h.var(2) + 1e-6)], 1))
model = XVec(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(4, 5, 20) * 2; y = torch.randint(0, 4, (4,))
    if step == 3: x[1] = 0            # silence
    loss = F.cross_entropy(model(x), y); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
