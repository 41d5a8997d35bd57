# opts: --check again:every=1 --on-nonfinite skip
# truth: shortest for a23: bit 30 of one element of a Linear's result makes 1e38 and the loss inf at step 3: should be said to be the machine
# source: as a23
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
m[0].register_forward_hook(lambda s, i, y: (C.poke(y, 6, 30, at=3, what="addmm 0"), None)[1])
for C.STEP in range(7): m(torch.ones(4, 4)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
