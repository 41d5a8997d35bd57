# torch-points3d#630: the scheduler is created after the optimizer's state was loaded, and sets the learning rate back
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class Trainer:
    def __init__(self):
        torch.manual_seed(8); self.model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3)); self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02); self.n = 0
        saved = torch.load("model.pt") if os.path.exists("model.pt") else None
        lam = lambda n: 0.85 ** n
        if fault:
            if saved:
                self.optimizer.load_state_dict(saved["optimizer"])
                for g in self.optimizer.param_groups: g.pop("initial_lr", None); g["lr"] = 0.02  # the option's value, as the base class sets it
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lam)
        else:
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lam)
            if saved: self.optimizer.load_state_dict(saved["optimizer"]); self.scheduler.load_state_dict(saved["scheduler"])
        if saved: self.model.load_state_dict(saved["models"]["latest"]); self.n = saved["n"]
    def run(self):
        while self.n < stop:
            p = torch.randn(32, 3, generator=torch.Generator().manual_seed(self.n)); loss = nn.functional.smooth_l1_loss(self.model(p), p.cross(p.roll(1, 0), dim=1))
            self.optimizer.zero_grad(); loss.backward(); self.optimizer.step(); self.scheduler.step(); self.n += 1; print(self.n, repr(loss.item()), flush=True)
            if self.n % 5 == 0: torch.save({"models": {"latest": self.model.state_dict()}, "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict(), "n": self.n}, "model.pt")
        print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())).hexdigest()[:16])
Trainer().run()
