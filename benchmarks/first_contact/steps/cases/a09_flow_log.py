import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.shift = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        a, b = x.chunk(2, -1)
        scale = torch.sigmoid(self.net(a) + 2)
        z = b * scale + self.shift(a)
        det = torch.log(1 - scale).sum(-1)
        return (0.5 * z**2).sum(-1) - det


model = Flow()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 8)
    if step == 2:
        x[6, :4] = 60 * model.net.weight.detach()[1].sign()
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
