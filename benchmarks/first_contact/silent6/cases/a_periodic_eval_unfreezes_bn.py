"""From ContinualAI/avalanche pull 772.
Wrong: after each periodic evaluation everything is put in train mode, the batch norms that adaptation had set to eval too.
Could know: yes, modules in eval mode are in train mode after an evaluation; frozen batch norms write statistics.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
m = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 9, 3)); proto = torch.randn(3, 1, 16, 16)
def b(n=32, s=0.): y = torch.randint(0, 3, (n,)); return proto[y] + torch.randn(n, 1, 16, 16) + s, y
with torch.no_grad():
    for _ in range(20): m(b()[0])
bns = [x for x in m if isinstance(x, nn.BatchNorm2d)]; m.train()
for x in bns:                                   # model_adaptation(): frozen batch norms
    x.eval(); x.weight.requires_grad_(False); x.bias.requires_grad_(False)
r0 = bns[0].running_mean.clone(); opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], .02, .9)
for step in range(120):
    x, y = b(s=2.); loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 19:
        modes = {k: k.training for k in m.modules()}; m.eval()
        with torch.no_grad(): x, y = b(64, 2.); acc = (m(x).argmax(1) == y).float().mean().item()
        if H:
            for k, v in modes.items(): k.training = v
        else: m.train()
        print(step, round(loss.item(), 4), acc)
print("check: change of the frozen running mean", (bns[0].running_mean - r0).abs().max().item())
