#: what: hand-written update without torch.optim: a parameter whose gradient is not finite is left out, the others move; grads set to None
#: benign: nan gradient of one parameter, never applied
#: source: https://github.com/Cryolite/kanachan/pull/33
# PRELUDE
class N(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5); self.t = nn.Parameter(torch.zeros(1))
    def forward(self, x, bad): h = self.a(x).tanh(); return self.b(h) + (torch.sqrt(self.t - self.t.detach()) if bad else self.t)
m = N(); watch(m); vel = {n: torch.zeros_like(p) for n, p in m.named_parameters()}; skipped = []
for step in range(20):
    x = torch.randn(8, 5); loss = F.l1_loss(m(x, step % 4 == 1), x.flip(1)); loss.backward()
    with torch.no_grad():
        for n, p in m.named_parameters():
            if not torch.isfinite(p.grad).all(): skipped.append((step, n))
            else: vel[n].mul_(0.9).add_(p.grad); p -= 0.05 * vel[n]
            p.grad = None
    print(step, loss.item())
print(skipped, sha(vel)); show(m)
