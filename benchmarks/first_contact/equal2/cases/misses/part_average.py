# f18 without Lightning: the average is of a part of the model; run twice with the same log dir; --whole: of the whole model
import os, sys, torch
from torch import nn
class Net(nn.Module):
    def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(6, 20), nn.Mish(), nn.Linear(20, 2))
    def forward(self, x): return self.body(x)
torch.manual_seed(0); net = Net(); opt = torch.optim.RMSprop(net.parameters(), 1e-3); first = not os.path.exists("c.pt")
if not first: c = torch.load("c.pt"); net.load_state_dict(c["net"]); opt.load_state_dict(c["opt"])
avg = torch.optim.swa_utils.AveragedModel(net if "--whole" in sys.argv else net.body, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
for i in range(10):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(i + 10 * (not first))); loss = nn.functional.cross_entropy(net(x), (x.sum(1) > 0).long()); opt.zero_grad(); loss.backward(); opt.step(); avg.update_parameters(net if "--whole" in sys.argv else net.body)
torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "c.pt"); print("updates", int(avg.n_averaged))
