import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

    def forward(self, energy):
        y, _ = self.net(torch.log(energy.clamp_min(1e-6)))
        return self.head(y[-1])


model = Speech()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    energy = torch.rand(12, 5, 4) + 0.1
    if step == 2:
        energy[7:, 2] = 0
    loss = F.cross_entropy(model(energy), torch.randint(0, 3, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
