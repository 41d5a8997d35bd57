# opts: --check again:every=1
# truth: torch.compile'd model (default backend inductor), bit 22 of the gradient of the output's input weight (2.weight's wgrad, parameter hook), step 4
# source: torch.compile tutorial
import sys
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.SGD(m.parameters(), 0.01)
m[2].weight.register_hook(lambda g: (C.poke(g, 70, 22, what="wgrad 2"), None)[1]); c = torch.compile(m)
for C.STEP in range(7): c(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
