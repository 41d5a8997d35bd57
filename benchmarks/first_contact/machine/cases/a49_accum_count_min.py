# opts: --check again:at=2
# truth: shortest for a25's text: three micro-batches a step, flip (bit 21 of addmm) in micro-batch 0 of step 2, the only step asked for: how many further steps does the alert claim?
# source: as a25
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)
m.register_forward_hook(lambda s, i, y: (C.poke(y, 5, 21, at=2, what="addmm, micro-batch 0"), None)[1])
for C.STEP in range(9):
    for _ in range(3): m(torch.randn(4, 4)).square().mean().backward()
    o.step(); o.zero_grad()
C.finish(m)
