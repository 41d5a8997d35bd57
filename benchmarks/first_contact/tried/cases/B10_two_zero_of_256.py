# source: face recognition (ArcFace ports): l2 norm by hand, two black crops
# planted rows: 100, 201 of 256
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Arc(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.w = nn.Linear(6, 8, bias=False), nn.Parameter(torch.randn(8, 10))
    def forward(self, x, y):
        h = self.fc(x)
        h = h / h.pow(2).sum(-1, keepdim=True).sqrt()
        return F.cross_entropy(10 * h @ F.normalize(self.w, dim=0), y)
model = Arc()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(256, 6), torch.randint(0, 10, (256,))
    if step == 2:
        x[[100, 201]] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
