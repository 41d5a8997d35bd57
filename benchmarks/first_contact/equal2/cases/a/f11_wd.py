# NVIDIA/Megatron-LM#7468: after a resume the groups hold the right lr and the constructor's weight decay for the first step
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class ParamScheduler:
    def __init__(self, opt, start_wd=0.0, end_wd=5.0, steps=20): self.opt, self.start_wd, self.end_wd, self.steps, self.num = opt, start_wd, end_wd, steps, 0; self.step(0)
    def step(self, inc):
        self.num += inc
        for g in self.opt.param_groups: g["lr"] = 0.01 * 0.97 ** self.num; g["weight_decay"] = self.start_wd + (self.end_wd - self.start_wd) * min(1, self.num / self.steps)
    def state_dict(self): return dict(start_wd=self.start_wd, end_wd=self.end_wd, steps=self.steps, num=self.num)
    def load_state_dict(self, s):
        if fault: end = self.end_wd; self.start_wd = self.end_wd = 0.0; self.num = 0; self.step(s["num"]); self.start_wd, self.end_wd, self.steps = s["start_wd"], s["end_wd"], s["steps"]
        else: self.start_wd, self.end_wd, self.steps = s["start_wd"], s["end_wd"], s["steps"]; self.num = 0; self.step(s["num"])
torch.manual_seed(11); net = nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Linear(40, 10)); opt = torch.optim.AdamW(net.parameters(), lr=0.01); sch = ParamScheduler(opt); it = 0
if os.path.exists("mp_rank_00.pt"):
    c = torch.load("mp_rank_00.pt"); net.load_state_dict(c["model"]); opt.load_state_dict(c["optimizer"]); sch.load_state_dict(c["opt_param_scheduler"]); it = c["iteration"]
while it < stop:
    x = torch.randn(16, 10, generator=torch.Generator().manual_seed(it)); loss = (net(x) - x.sort(1).values).abs().mean(); opt.zero_grad(); loss.backward(); opt.step(); sch.step(1); it += 1
    print(it, repr(loss.item()), flush=True)
    if it % 5 == 0: torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "opt_param_scheduler": sch.state_dict(), "iteration": it}, "mp_rank_00.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
