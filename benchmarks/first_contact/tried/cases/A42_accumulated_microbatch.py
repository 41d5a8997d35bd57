# source: gradient accumulation threads: the second micro-batch of a step has the fault
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
    def forward(self, x, w, y):
        nll = F.cross_entropy(self.fc(x), y, reduction="none")
        return (nll * w).sum() / w.sum()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    opt.zero_grad()
    for micro in range(2):
        x, w, y = torch.randn(6, 6), torch.rand(6), torch.randint(0, 4, (6,))
        if step == 2 and micro == 1:
            w[:] = 0
        (model(x, w, y) / 2).backward()
    opt.step()
