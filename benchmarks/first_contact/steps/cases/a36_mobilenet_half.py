import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
import tv_stub
import torchvision

model = torchvision.models.mobilenet_v3_small(num_classes=4, dropout=0.0)
with torch.no_grad():
    model.classifier[0].weight.mul_(1e7)
    model.classifier[3].weight.mul_(1e-4)
model.half()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.float()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.register_forward_pre_hook(lambda m, a: (a[0].float(),))
        m.register_forward_hook(lambda m, a, y: y.half())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(6):
    images = torch.rand(8, 3, 32, 32).half()
    loss = F.cross_entropy(model(images).float(), torch.randint(0, 4, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
