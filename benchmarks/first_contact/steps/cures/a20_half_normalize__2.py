import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


model = Embed().half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(8, 8).half()
    if step == 2:
        x[5] = 0
    if step == 2: x = x[[i for i in range(len(x)) if i not in (5,)]]
    z = model(x)
    loss = (z @ z.T).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
