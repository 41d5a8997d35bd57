# atomistic-machine-learning/schnetpack#785: saved while validation had the average copied into the model; resumed from the average
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class Average:
    def __init__(self, ps): self.ps = list(ps); self.shadow = [p.detach().clone() for p in self.ps]
    def update(self): [s.mul_(0.8).add_(p.detach(), alpha=0.2) for s, p in zip(self.shadow, self.ps)]
    def store(self): self.kept = [p.detach().clone() for p in self.ps]
    def copy_to(self): [p.data.copy_(s) for s, p in zip(self.shadow, self.ps)]
    def restore(self): [p.data.copy_(s) for s, p in zip(self.kept, self.ps)]
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(5, 24), nn.Softplus(), nn.Linear(24, 1)); ema = Average(model.parameters()); opt = torch.optim.Adam(model.parameters(), 1e-2); first = 0
if os.path.exists("best.ckpt"):
    s = torch.load("best.ckpt"); model.load_state_dict(s["state_dict"]); opt.load_state_dict(s["optimizer"]); first = s["epoch"]; ema.shadow = s["shadow"]
val = torch.randn(16, 5, generator=torch.Generator().manual_seed(99))
for epoch in range(first, (stop + 4) // 5):
    for b in range(5):
        if epoch * 5 + b >= stop: break
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(epoch * 100 + b)); loss = (model(x)[:, 0] - x.prod(1)).square().mean()
        opt.zero_grad(); loss.backward(); opt.step(); ema.update(); print(epoch * 5 + b + 1, repr(loss.item()), flush=True)
    else:
        ema.store(); ema.copy_to(); model.eval()
        with torch.no_grad(): print("val", repr((model(val)[:, 0] - val.prod(1)).square().mean().item()))
        if not fault: ema.restore()
        torch.save({"state_dict": model.state_dict(), "optimizer": opt.state_dict(), "epoch": epoch + 1, "shadow": ema.shadow}, "best.ckpt")
        ema.restore(); model.train()
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
