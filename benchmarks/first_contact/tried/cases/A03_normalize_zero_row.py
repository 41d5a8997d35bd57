# source: UKPLab/sentence-transformers style x / x.norm(); pytorch/pytorch#18250
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8, bias=False)
    def forward(self, x, y):
        h = F.relu(self.fc(x))
        h = h / h.norm(dim=-1, keepdim=True)
        return ((h - y) ** 2).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(12, 8), torch.randn(12, 8)
    if step == 2:
        x[4] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
