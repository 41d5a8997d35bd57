import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.price, self.shape = nn.Linear(2, 8), nn.Linear(3, 8)

    def forward(self, batch):
        return self.price(torch.log(batch["price"])) + self.shape(batch["shape"])


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    batch = {"price": torch.rand(6, 2) + 0.1, "shape": torch.randn(6, 3)}
    if step == 2:
        batch["price"][4, 1] = -3.0
    if step == 2: batch = {n: v[[0, 1, 2, 3, 5]] for n, v in batch.items()}
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
