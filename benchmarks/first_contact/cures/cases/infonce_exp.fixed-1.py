import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/huggingface/sentence-transformers/issues/2774
class Bi(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.EmbeddingBag(60, 16)
    def forward(self, a, b, tau):
        a, b = F.normalize(self.e(a), dim=1), F.normalize(self.e(b), dim=1)
        s = torch.exp((a @ b.T / tau).clamp(-22, 22))
        return -torch.log(s.diag() / s.sum(1)).mean()
model = Bi(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    a = torch.randint(0, 60, (6, 5)); b = a.flip(1)
    tau = 0.05 if step < 4 else 0.01      # temperature schedule
    loss = model(a, b, tau); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
