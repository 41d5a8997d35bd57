# facebookresearch/fairscale#601: at the resume the optimizer is built over the parameters in another order; its state goes by index
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(21)
class Res(nn.Module):
    def __init__(self): super().__init__(); self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(4)); self.out = nn.Linear(16, 3)
    def forward(self, x):
        for b in self.blocks: x = x + b(x).tanh()
        return self.out(x)
net = Res(); resumed = os.path.exists("sd.pt")
blocks = list(net.blocks)[::-1] if fault and resumed else list(net.blocks)  # layer-wise decay lists them from the top
groups = [{"params": [b.weight for b in blocks], "weight_decay": 0.05}, {"params": [b.bias for b in blocks], "weight_decay": 0.0}, {"params": net.out.parameters()}]
opt = torch.optim.NAdam(groups, lr=4e-3); n = 0
if resumed: sd = torch.load("sd.pt"); net.load_state_dict(sd[0]); opt.load_state_dict(sd[1]); n = sd[2]
while n < stop:
    g = torch.Generator().manual_seed(n); x, y = torch.randn(12, 16, generator=g), torch.randint(0, 3, (12,), generator=g); loss = nn.functional.cross_entropy(net(x), y); loss.backward(); opt.step(); opt.zero_grad(); n += 1
    print(n, repr(loss.item()), flush=True)
    if not n % 5: torch.save([net.state_dict(), opt.state_dict(), n], "sd.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
