import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)

    def forward(self, images):
        return torch.stack([self.head(self.net(((i - i.mean()) / torch.where(i.std().abs() < 1e-6, 1e-6, i.std()))[None]).mean((2, 3)))[0] for i in images])


model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    images = [torch.rand(1, 8 + k, 8) for k in range(4)]
    if step == 2:
        images[1][:] = 0.5
    loss = model(images).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
