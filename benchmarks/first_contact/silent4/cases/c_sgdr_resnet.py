from _training import *
class B(nn.Module):
    def __init__(s, c): super().__init__(); s.f = nn.Sequential(nn.Conv1d(c, c, 3, padding=1, bias=False), nn.BatchNorm1d(c), nn.ReLU(), nn.Conv1d(c, c, 3, padding=1, bias=False), nn.BatchNorm1d(c))
    def forward(s, x): return (x + s.f(x)).relu()
net = nn.Sequential(nn.Conv1d(1, 16, 3, padding=1), B(16), B(16), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4)); opt = torch.optim.SGD(net.parameters(), .1, momentum=.9, weight_decay=5e-4); sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 120, 2); a = []
for step in range(840):
    y = torch.randint(4, (32,)); x = (torch.arange(24)[None] * (y[:, None] + 1) * .3 + 6.28 * torch.rand(32, 1)).sin()[:, None] + .5 * torch.randn(32, 1, 24)
    o = net(x); loss = F.cross_entropy(o, y); opt.zero_grad(); loss.backward(); opt.step(); sched.step(); a.append((o.argmax(-1) == y).float().mean().item())
truth(acc=sum(a[-40:]) / 40)
