# opts: --check again:every=1
# truth: bit 25 of one element of nn.Linear's weight gradient (hook of the parameter, in memory), step 4; shortest script for a04
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Tanh(), torch.nn.Linear(24, 2)); o = torch.optim.SGD(m.parameters(), 0.01)
m[0].weight.register_hook(lambda g: (C.poke(g, 70, 25, what="wgrad 0"), None)[1])
for C.STEP in range(8): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
