# opts: --check again:every=1
# truth: bit 24 of one element of the gradient that conv2's backward gave (input of conv2 = output of relu), at step 4; op convolution_backward at conv2's line
# source: pytorch/examples mnist's net; fault as arXiv 2102.11245
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class Net(nn.Module):
    def __init__(s): super().__init__(); s.conv1, s.conv2, s.bn, s.fc = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)
    def forward(s, x):
        x = F.relu(s.conv1(x))
        if x.requires_grad and C.FAULT: x.register_hook(lambda g: C.poke(g, 200, 24, what="conv2's dgrad") and None if False else (C.poke(g, 200, 24, what="conv2 dgrad"), None)[1])
        x = s.bn(s.conv2(x))  # FAULT
        return s.fc(x.mean((2, 3)))
torch.manual_seed(0); m = Net(); o = torch.optim.SGD(m.parameters(), 0.01, nesterov=True, momentum=0.9)
for C.STEP in range(8):
    F.cross_entropy(m(torch.randn(4, 1, 12, 12)), torch.randint(0, 10, (4,))).backward(); o.step(); o.zero_grad()
C.finish(m, o)
