import torch, hashlib, sys
from torch import nn

torch.manual_seed(0)
W = "written" in sys.argv
class Ff(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        return self.b(self.a(x).square()) * 1e-3
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.n, self.ff, self.m, self.out = nn.Linear(8, 8), nn.BatchNorm1d(8), Ff(), nn.BatchNorm1d(8), nn.Linear(8, 1)
    def forward(self, x):
        x = self.n(self.i(x)) * self.gain
        return self.out(self.m(self.ff(x)))

net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(8):
    net.gain = 400.0 if step in (3, 5) else 1.0
    if W and step == 4:
        import numscope
        for n in sys.argv[2:]:
            numscope.high_precision(net.get_submodule(n))
    buffers = {k: v.clone() for k, v in net.named_buffers()}
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(torch.randn(6, 8)).float().square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    if W and step == 3:
        for k, v in net.named_buffers():
            v.copy_(buffers[k])
    scaler.step(opt)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())
h = hashlib.sha256()
for v in net.state_dict().values():
    h.update(v.numpy().tobytes())
print("SHA", h.hexdigest()[:16])
