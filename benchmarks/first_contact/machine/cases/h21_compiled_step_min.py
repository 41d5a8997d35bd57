# opts: --check again:every=1
# truth: healthy; shortest for h12: pytorch tutorial's compiled optimizer step
import sys
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Linear(64, 64); o = torch.optim.Adam(m.parameters(), lr=0.01); step = torch.compile(o.step)
for _ in range(4): m(torch.randn(8, 64)).square().mean().backward(); step(); o.zero_grad()
C.finish(m, o)
