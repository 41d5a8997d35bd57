# source: F.normalize in float16: its eps 1e-12 is 0 there (openai/CLIP, pytorch forum)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8, bias=False)
    def forward(self, x, y):
        h = F.normalize(self.fc(x), dim=-1)
        return (h.float() - y).square().mean()
model = Net().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(8, 6).to(torch.float16), torch.randn(8, 8)
    if step == 2:
        x[6] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
