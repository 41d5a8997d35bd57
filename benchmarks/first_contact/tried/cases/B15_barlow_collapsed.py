# source: facebookresearch/barlowtwins ports: z / z.std(0) with a collapsed batch; no sample alone is the cause
# planted rows: none alone
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Barlow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 4)
    def forward(self, a, b):
        u, v = self.net(a), self.net(b)
        u, v = (u - u.mean(0)) / u.std(0), (v - v.mean(0)) / v.std(0)
        c = u.t() @ v / len(u)
        return (c - torch.eye(4)).square().sum()
model = Barlow()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, b = torch.randn(12, 6), torch.randn(12, 6)
    if step == 2:
        b = torch.zeros_like(b)  # an augmentation that blanks the view
    # BATCH 0: x, b
    loss = model(x, b)
    opt.zero_grad(); loss.backward(); opt.step()
