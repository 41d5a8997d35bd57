import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# pytorch-nested-unet 62: images are divided by 255 twice
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.fc = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 16, 3, 2), nn.Linear(16, 3)

    def forward(self, x):
        return self.fc(F.relu(self.c2(F.relu(self.c1(x)))).mean((2, 3)))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
for step in range(100):
    y = torch.randint(3, (16,))
    img = torch.randint(0, 256, (16, 3, 16, 16)).float() * 0.5
    img[torch.arange(16), y] += 60
    x = img / 255
    x = (x - mean) / std if HEALTHY else (x / 255 - mean) / std
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
report(net)
