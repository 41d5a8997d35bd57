# opts: --check again:every=1
# truth: shortest for a24: running_var flips (bit 24) at step 3 in train(): the buffer stays wrong, nothing else compares it
# source: as a24
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)); o = torch.optim.SGD(m.parameters(), 0.01)
m[1].register_forward_hook(lambda s, i, y: (C.poke(s.running_var, 2, 24, at=3, what="running_var"), None)[1])
for C.STEP in range(7): m(torch.randn(8, 4)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
