# f22, f25, f18 and f04 in plain loops: run twice with the same log dir; the word chooses what is not restored
import copy, os, sys, torch
from torch import nn
what = sys.argv[1]; torch.manual_seed(0)
net = nn.Linear(4, 4); opt = torch.optim.Adam(net.parameters(), 1e-2); scale = torch.zeros(1, requires_grad=True); so = torch.optim.Adam([scale], 1e-1)
if os.path.exists("c.pt"): c = torch.load("c.pt"); net.load_state_dict(c["net"]); opt.load_state_dict(c["opt"])  # neither scale nor so, nor the average
avg = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)) if what == "average" else None
for i in range(10):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(i + 10 * os.path.exists("c.pt"))); loss = (net(x) - x.flip(1)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    if what == "scale": l2 = (scale.exp() * (loss.detach() - 0.5)).sum(); so.zero_grad(); l2.backward(); so.step()
    if avg: avg.update_parameters(net)
torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "c.pt"); print("scale", scale.item(), "average", avg and avg.module.weight.sum().item(), avg and int(avg.n_averaged))
