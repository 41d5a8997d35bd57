from _training import *
class ViT(nn.Module):
    def __init__(s, d=32):
        super().__init__(); s.patch = nn.Conv2d(1, d, 4, 4); s.cls = nn.Parameter(torch.zeros(1, 1, d)); s.pos = nn.Parameter(torch.randn(1, 10, d) * .02); s.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, .1, batch_first=True), 2); s.h = nn.Linear(d, 3)
    def forward(s, x):
        x = s.patch(x).flatten(2).transpose(1, 2); return s.h(s.t(torch.cat([s.cls.expand(len(x), -1, -1), x], 1) + s.pos)[:, 0])
net = ViT(); opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=.05); sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=800); a = []
for step in range(800):
    y = torch.randint(3, (32,)); x = torch.randn(32, 1, 12, 12) * .6
    for k in range(32): x[k, 0, 4 * y[k]:4 * y[k] + 4, 2:10] += 1.
    o = net(x); loss = F.cross_entropy(o, y); opt.zero_grad(); loss.backward(); opt.step(); sched.step(); a.append((o.argmax(-1) == y).float().mean().item())
truth(acc=sum(a[-50:]) / 50)
