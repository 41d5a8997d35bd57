# source: cosine classifiers (ArcFace): weight / weight.norm(); a nan row at 0 is 0/0
# planted: row 4 of weight; a row at 0 does not help
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.weight = nn.Linear(5, 8), nn.Parameter(torch.randn(6, 8))
    def forward(self, x, y):
        w = self.weight / self.weight.norm(dim=1, keepdim=True)
        return F.cross_entropy(F.normalize(self.fc(x), dim=-1) @ w.t(), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(8, 5), torch.randint(0, 4, (8,))
    if step == 2:
        model.weight.data[4] = float("nan")
    # WEIGHT
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
