# source: as B04 with 8 samples (dataclass batch)
# planted rows: 3 of 8
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from dataclasses import dataclass
@dataclass
class Batch:
    pixels: torch.Tensor
    labels: torch.Tensor
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 3)
    def forward(self, batch):
        x = batch.pixels
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        return F.cross_entropy(self.fc(x), batch.labels)
model = Net()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    x, y = torch.rand(8, 12), torch.randint(0, 3, (8,))
    if step == 2:
        x[3] = 0
    # BATCH 0: x, y
    loss = model(Batch(x, y))
    opt.zero_grad(); loss.backward(); opt.step()
