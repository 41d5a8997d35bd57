# source: qubvel/segmentation_models dice without smooth on an empty mask, bfloat16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Seg(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    def forward(self, x, y):
        p = F.relu(self.conv(x))
        inter, union = (p * y).sum((1, 2, 3)), (p + y).sum((1, 2, 3))
        return (1 - 2 * inter / union).mean()
model = Seg().to(torch.bfloat16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(6, 1, 8, 8).to(torch.bfloat16), torch.randint(0, 2, (6, 1, 8, 8)).to(torch.bfloat16)
    if step == 2:
        x[4], y[4] = 0, 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
