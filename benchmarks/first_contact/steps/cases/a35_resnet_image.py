import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
import tv_stub
import torchvision

model = torchvision.models.resnet18(num_classes=4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    images = torch.rand(4, 3, 32, 32)
    if step == 2:
        images[2] /= 0
    loss = F.cross_entropy(model(images), torch.randint(0, 4, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
