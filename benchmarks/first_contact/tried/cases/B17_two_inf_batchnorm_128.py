# source: kaggle tabular threads: log1p feature of -1 gives -inf; dict batch with BatchNorm1d
# planted rows: 31, 90 of 128
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.fc = nn.BatchNorm1d(5), nn.Linear(5, 2)
    def forward(self, batch):
        return F.cross_entropy(self.fc(self.bn(torch.log1p(batch["x"]))), batch["y"])
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.rand(128, 5), torch.randint(0, 2, (128,))
    if step == 2:
        x[[31, 90], 2] = -1.0
    # BATCH 0: x, y
    loss = model({"x": x, "y": y})
    opt.zero_grad(); loss.backward(); opt.step()
