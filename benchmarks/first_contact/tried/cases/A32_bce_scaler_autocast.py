# source: pytorch forum: autocast float16 + GradScaler, exp in the model's own loss overflows
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x, y):
        h = self.fc2(F.gelu(self.fc1(x)))
        e = torch.exp(h.half())
        return -torch.log(e[torch.arange(len(y)), y] / e.sum(-1)).mean()
model = Net()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(9):
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    if step == 2:
        x[0] = x[0].sign() * 60
    # BATCH 0: x, y
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x, y)
    opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
