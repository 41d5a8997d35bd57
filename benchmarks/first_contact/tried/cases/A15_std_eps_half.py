# source: openai/guided-diffusion style (x - mean) / (std + 1e-8) in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 8, bias=False), nn.Linear(8, 1)
    def forward(self, x, y):
        h = self.fc1(x)
        h = (h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True) + 1e-8)
        return (self.fc2(h).squeeze(-1) - y).square().mean()
model = Net().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(9, 8).to(torch.float16), torch.randn(9).to(torch.float16)
    if step == 2:
        x[8] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
