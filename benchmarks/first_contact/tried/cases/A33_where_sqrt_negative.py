# source: pytorch/pytorch#10729-like: torch.where hides the value of sqrt of a negative, not its gradient
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
    def forward(self, x, y):
        h = self.fc(x).squeeze(-1)
        root = torch.where(h > 0, torch.sqrt(h), torch.zeros_like(h))
        return (root - y).square().mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.rand(8, 6) + 0.1, torch.rand(8)
    x = x * model.fc.weight.detach()[0].sign() + 0
    model.fc.bias.data.fill_(0.1)
    if step == 2:
        x[3] = -x[3] * 5
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
