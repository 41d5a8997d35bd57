"""Losses that depend on a gauge of eigenvectors or singular vectors must raise the same error in backward, those that don't must keep their gradients' bits."""
# PRELUDE
m = net(2, 8, 16, 9)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.02)


def attempt(label, f, x):
    opt.zero_grad()
    a = m(x).reshape(-1, 3, 3)
    try:
        loss = f(a)
        loss.backward()
        opt.step()
        print(label, "ok", float(loss.detach()).hex(), M(m))
    except (RuntimeError, torch.linalg.LinAlgError) as e:
        print(label, type(e).__name__, str(e).splitlines()[0][:200], [p.grad is None for p in m.parameters()])


for s in range(3):
    x, _ = batch(s)
    attempt("eigvals", lambda a: torch.linalg.eigvals(a).abs().sum(), x)
    attempt("eig abs", lambda a: torch.linalg.eig(a).eigenvectors.abs().square()[..., 0].sum() + torch.linalg.eig(a)[0].imag.square().sum(), x)
    attempt("eig phase", lambda a: torch.linalg.eig(a).eigenvectors.imag[..., 0].sum() + torch.linalg.eig(a).eigenvectors.real[..., 1].sum(), x)
    attempt("eigh", lambda a: (lambda r: (r[0] * r[1].abs().sum(-2)).sum())(torch.linalg.eigh(a + a.mT)), x)
    attempt("eigh phase", lambda a: torch.linalg.eigh(torch.complex(a + a.mT, a - a.mT)).eigenvectors.imag.sum() + torch.linalg.eigh(torch.complex(a + a.mT, a - a.mT)).eigenvectors.real.sum(), x)
    attempt("svd abs", lambda a: torch.linalg.svd(torch.complex(a, a.mT)).U.abs().sum(), x)
    attempt("svd phase", lambda a: torch.linalg.svd(torch.complex(a, a.mT)).U.imag.sum(), x)
    attempt("full", lambda a: torch.linalg.svd(a[..., :2], full_matrices=True).U.sum(), x)
    attempt("qr complete", lambda a: torch.linalg.qr(a[..., :2], mode="complete").Q.sum(), x)
    attempt("qr", lambda a: torch.linalg.qr(a).R.diagonal(dim1=-2, dim2=-1).abs().log().sum(), x)
    attempt("singular", lambda a: torch.linalg.inv(a * torch.tensor([1.0, 1.0, 0.0])).sum(), x)
    attempt("cholesky", lambda a: torch.linalg.cholesky(a).sum(), x)
    attempt("cholesky_ex", lambda a: torch.linalg.cholesky_ex(a @ a.mT + torch.eye(3)).L.sum(), x)
print(R())
