# source: kornia / clcarwin/focal_loss_pytorch with gamma=0.5: (1-pt)**gamma at pt=1
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Focal(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)
    def forward(self, x, y):
        logp = self.fc(x).log_softmax(-1).gather(1, y[:, None]).squeeze(1)
        pt = logp.exp()
        return -((1 - pt) ** 0.5 * logp).mean()
model = Focal()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
    if step == 2:
        x[2] = 3000.0
        y[2] = int(model.fc(x)[2].argmax())
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
