# timm train.py's --resume --model-ema: the averaged model gets state_dict where it should get state_dict_ema (compare Vchitect/Latte#55)
import copy, hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class ModelEmaV2(nn.Module):
    def __init__(self, model, decay): super().__init__(); self.module = copy.deepcopy(model); self.module.eval(); self.decay = decay
    @torch.no_grad()
    def update(self, model):
        for e, m in zip(self.module.state_dict().values(), model.state_dict().values()): e.copy_(self.decay * e + (1.0 - self.decay) * m)
def load_checkpoint(model, path, use_ema): c = torch.load(path); model.load_state_dict(c["state_dict_ema" if use_ema else "state_dict"]); return c
torch.manual_seed(27); model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 4)); opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4); start = 0
if os.path.exists("last.pth.tar"): c = load_checkpoint(model, "last.pth.tar", False); opt.load_state_dict(c["optimizer"]); start = c["update"]
ema = ModelEmaV2(model, 0.95)
if start: load_checkpoint(ema.module, "last.pth.tar", use_ema=not fault)
for u in range(start, stop):
    g = torch.Generator().manual_seed(u); x, y = torch.randn(8, 3, 6, 6, generator=g), torch.randint(0, 4, (8,), generator=g)
    loss = nn.functional.cross_entropy(model(x), y); opt.zero_grad(); loss.backward(); opt.step(); ema.update(model); print(u + 1, repr(loss.item()), repr(sum(v.double().sum().item() for v in ema.state_dict().values())), flush=True)
    if (u + 1) % 5 == 0: torch.save({"epoch": 0, "update": u + 1, "state_dict": model.state_dict(), "state_dict_ema": ema.module.state_dict(), "optimizer": opt.state_dict()}, "last.pth.tar")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (model, ema) for p in m.parameters())).hexdigest()[:16])
