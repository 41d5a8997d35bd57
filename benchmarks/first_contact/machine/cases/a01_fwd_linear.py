# opts: --check again:every=1
# truth: one bit (20) of one element of F.linear's result at step 4; aten.addmm forward, layer fc2
# source: Dixit et al., arXiv 2102.11245 (silent data corruption at scale)
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class Lin(nn.Linear):
    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)  # FAULT
        return C.poke(y, 37, 20, what="addmm fwd fc2") if self.out_features == 24 else y
class Net(nn.Module):
    def __init__(s):
        super().__init__(); s.fc1, s.fc2, s.fc3 = Lin(16, 32), Lin(32, 24), Lin(24, 1)
    def forward(s, x): return s.fc3(s.fc2(s.fc1(x).relu()).tanh())
torch.manual_seed(0); m = Net(); o = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
for C.STEP in range(9):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o)
