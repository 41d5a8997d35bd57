"""Training whose auxiliary branch is inf or nan where a mask discards it (gradients finite), with a queue, a momentum encoder, an EMA teacher centre and a file that each forward appends to, must do all of it exactly once."""
# PRELUDE
from collections import deque


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = net(1), net(1)
        for p in self.k.parameters():
            p.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(4, 10), dim=0))
        self.register_buffer("center", torch.zeros(4))
        self.recent, self.it = deque(maxlen=3), 0
        self.file = open("forward.log", "a")

    @torch.no_grad()
    def update(self):
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.data.mul_(0.9).add_(a.data, alpha=0.1)

    def forward(self, x):
        self.it += 1
        q = self.q(x)
        with torch.no_grad():
            self.update()
            k = F.normalize(self.k(x.flip(1)), dim=1)
        logits = torch.cat([(F.normalize(q, dim=1) * k).sum(1, keepdim=True), F.normalize(q, dim=1) @ self.queue.clone()], 1) / 0.2
        self.queue.copy_(self.queue.roll(len(x), 1))
        self.queue[:, : len(x)] = k.T
        self.center.lerp_(k.mean(0), 0.1)
        ratio = torch.log(x[:, :1] * 0) * torch.zeros(1)  # nan everywhere, thrown away
        area = 1 / (x[:, 1].round().detach())  # inf in places, masked
        ok = torch.isfinite(area)
        bonus = torch.where(ok, torch.where(ok, area, 1.0) * q[:, 0], ratio[:, 0].detach())
        bonus = torch.where(bonus.isnan(), torch.zeros(()), bonus)
        self.recent.append(self.it)
        self.file.write(f"{self.it} {int(ok.sum())} {H(self.queue)}\n")
        self.file.flush()
        return logits, bonus, area


torch.manual_seed(1)
m = Model()
W(m)
opt = torch.optim.SGD(m.q.parameters(), 0.1, momentum=0.9)
for s in range(8):
    x, _ = batch(s, 5)
    logits, bonus, area = m(x)
    loss = F.cross_entropy(logits, torch.zeros(5, dtype=torch.long)) + 0.01 * bonus.mean()
    metric = area.masked_fill(~area.isfinite(), 0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), float(metric).hex(), M(m), list(m.recent), m.it, H(m.queue), H(m.center), m.queue._version, m.center._version, R())
m.file.close()
print(open("forward.log").read())
