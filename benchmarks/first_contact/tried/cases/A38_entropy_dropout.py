# source: entropy p*log(p) by hand with dropout before (facebookresearch/swav ports); random numbers in the call
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(6, 5), nn.Dropout(0.3)
    def forward(self, x, y):
        logits = self.fc(self.drop(x))
        p = logits.softmax(-1)
        return F.cross_entropy(logits, y) - 0.1 * (p * torch.log(p)).sum(-1).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(9):
    x, y = torch.randn(16, 6), torch.randint(0, 5, (16,))
    if step == 2:
        x[10] = 900.0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
