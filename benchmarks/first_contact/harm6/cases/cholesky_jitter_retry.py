"""A Gaussian-process likelihood over deep features whose Cholesky decomposition fails now and then: LinAlgError caught in the model and tried again with more jitter, cholesky_ex, solves that fail, SVD gradients that raise; texts, number of tries, weights."""
# PRELUDE
tries = []


class DeepGP(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = net(3, 8, 16, 2)
        self.noise = nn.Parameter(torch.tensor(-30.0))

    def forward(self, x, y):
        f = self.features(x)
        k = torch.exp(-torch.cdist(f, f).square())
        jitter = 0.0
        for n in range(8):
            try:
                l = torch.linalg.cholesky(k + (self.noise.exp() + jitter) * torch.eye(len(x)))
                break
            except torch.linalg.LinAlgError as e:
                tries.append((n, type(e).__name__, str(e)[:70]))
                jitter = 1e-6 if jitter == 0 else jitter * 10
        a = torch.cholesky_solve(y, l)
        return 0.5 * (y * a).sum() + l.diagonal().log().sum()


m = DeepGP()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(8):
    x, y = batch(s)
    if s % 2:
        x = torch.cat([x, x])  # the same rows twice: singular
        y = torch.cat([y, y + 0.001])
    opt.zero_grad()
    loss = m(x, y[:, :1])
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    print(s, loss.item().hex(), len(tries), M(m))
l, info = torch.linalg.cholesky_ex(-torch.eye(3))
print(info.item(), H(l))
for f in (lambda: torch.linalg.solve(m.features(torch.zeros(2, 8))[:, :2], torch.ones(2, 1)), lambda: torch.linalg.inv(torch.zeros(2, 2)), lambda: torch.linalg.eigh(torch.full((2, 2), float("nan")))):
    try:
        print(H(f()))
    except Exception as e:
        print(type(e).__name__, str(e)[:100])
u, sv, v = torch.linalg.svd(m.features(torch.ones(4, 8) * torch.arange(4.0)[:, None]), full_matrices=False)
try:
    (u.sum() + sv.sum()).backward()
    print(M(m), all(p.grad.isfinite().all().item() for p in m.parameters() if p.grad is not None))
except RuntimeError as e:
    print(str(e)[:100])
print(tries, R())
