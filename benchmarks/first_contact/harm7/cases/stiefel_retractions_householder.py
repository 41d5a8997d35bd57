"""Householder products, ormqr, QR and Cayley retractions and matrix exponentials of an orthogonal layer and a Riemannian optimizer must keep bits, strides and versions."""
# PRELUDE
class House(nn.Module):
    def __init__(self):
        super().__init__()
        self.v, self.s = nn.Parameter(torch.randn(8, 5)), nn.Parameter(torch.randn(8, 8) * 0.1)
        self.w, self.o = nn.Parameter(torch.linalg.qr(torch.randn(8, 4)).Q), nn.Linear(4, 4)

    def forward(self, x):
        v = self.v.tril(-1) + torch.eye(8, 5)
        tau = 2 / (v * v).sum(0)
        q = torch.linalg.householder_product(v, tau)
        z = torch.ormqr(v, tau, x.T, left=True, transpose=False).T
        e = torch.matrix_exp(self.s - self.s.T)
        return self.o((x @ q @ q.T + z) @ e @ self.w)


torch.manual_seed(4)
m = House()
W(m)
opt = torch.optim.SGD([p for n, p in m.named_parameters() if n != "w"], 0.02)
for s in range(5):
    x, y = batch(s)
    m.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    with torch.no_grad():
        w, g = m.w, m.w.grad
        r = g - w @ (0.5 * (w.T @ g + g.T @ w))
        if s % 2:
            q, t = torch.linalg.qr(w - 0.05 * r)
            w.copy_(q * (t.diagonal().sign() + 0.5).sign())
        else:
            a = g @ w.T - w @ g.T
            w.set_(torch.linalg.solve(torch.eye(8) + 0.025 * a, (torch.eye(8) - 0.025 * a) @ w))
        lu, piv = torch.linalg.lu_factor(a if s % 2 == 0 else w @ w.T + torch.eye(8))
        P, L, U = torch.lu_unpack(lu, piv)
        print(s, "lu", H(lu), piv.tolist(), H(P @ L @ U), lu.stride(), L.stride(), H(torch.linalg.det(L)), H(torch.linalg.slogdet(torch.eye(8) + w @ w.T)))
        print(s, "mp", H(torch.linalg.matrix_power(m.s, 3)), H(torch.linalg.matrix_power(torch.eye(8) + m.s, -2)), H(torch.linalg.multi_dot([w.T, m.s, w])), H(torch.linalg.tensorinv(torch.eye(8).view(2, 4, 8) + 0.1)))
    print(s, float(loss.detach()).hex(), M(m), w._version, w.stride(), [p.grad._version for p in m.parameters()], [p.grad.stride() for p in m.parameters()], H(w.T @ w))
print(torch.linalg.tensorinv((torch.eye(8) + m.s).view(2, 4, 8)).grad_fn.name())
