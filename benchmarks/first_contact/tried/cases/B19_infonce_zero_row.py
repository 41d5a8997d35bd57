# source: batch-coupled InfoNCE (facebookresearch/moco ports) with a zero vector in the batch
# planted rows: 6 of 10
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class NCE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8, bias=False)
    def forward(self, a, b):
        u, v = self.fc(a), self.fc(b)
        u = u / u.pow(2).sum(-1, keepdim=True).sqrt()
        v = v / v.pow(2).sum(-1, keepdim=True).sqrt()
        return F.cross_entropy(u @ v.t() / 0.1, torch.arange(len(u)))
model = NCE()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, b = torch.randn(10, 6), torch.randn(10, 6)
    if step == 2:
        x[6] = 0
    # BATCH 0: x, b
    loss = model(x, b)
    opt.zero_grad(); loss.backward(); opt.step()
