# ranks: 3
# opts: --check rank:at=2
# truth: no DDP: gradients all-reduced by hand; rank 0 (which leaves the arguments) flips bit 15 of one element of b's result in each call; args are a dict of tensors and a flag: b, rank 0
# source: pytorch tutorial "Writing distributed applications" (average_gradients); fault as arXiv 2102.11245
import flips as C, torch, torch.distributed as D
from torch import nn
D.init_process_group("gloo"); r = D.get_rank(); BAD = C.FAULT and r == 0
class B(nn.Linear):
    def forward(s, x):
        y = super().forward(x)
        if BAD: C.flip(y, 3, 15)
        return y
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.c = nn.Linear(32, 64), B(64, 32), nn.Linear(32, 2)
    def forward(s, batch, scale=1.0): return s.c(torch.relu(s.b(torch.tanh(s.a(batch["x"]))))) * scale
torch.manual_seed(0); m = Net(); torch.manual_seed(100 + r); o = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)
for C.STEP in range(30):
    m({"x": torch.randn(8, 32), "flag": True}, scale=0.5).square().mean().backward()
    for p in m.parameters(): D.all_reduce(p.grad); p.grad /= 3
    o.step(); o.zero_grad()
C.finish(m); D.destroy_process_group()
