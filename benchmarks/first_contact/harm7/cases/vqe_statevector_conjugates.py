"""A variational circuit by complex matmuls with lazily conjugated operands, in training, evaluation and parameter shifts, must keep the bits of states, expectation values and gradients."""
# PRELUDE
X = torch.tensor([[0, 1], [1, 0]], dtype=torch.complex64)
Z = torch.tensor([[1, 0], [0, -1]], dtype=torch.complex64)


class Circuit(nn.Module):
    def __init__(self, n=4, layers=2):
        super().__init__()
        self.n = n
        self.theta = nn.Parameter(torch.randn(layers, n, 2) * 0.5)
        self.calls = 0

    def forward(self, state):
        self.calls += 1
        for layer in self.theta:
            for q in range(self.n):
                a, b = layer[q]
                ry = torch.stack([torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])]).to(torch.complex64)
                rz = torch.diag_embed(torch.stack([torch.exp(-1j * b), torch.exp(1j * b)]))
                state = torch.movedim(torch.tensordot(rz @ ry, state, ([1], [q + 1])), 0, q + 1)
            state = torch.stack([state.select(1, 0), state.select(1, 1).flip(1)], 1)
        return state


H4 = sum(torch.kron(torch.kron(torch.eye(2**i, dtype=torch.complex64), torch.kron(Z, Z)), torch.eye(2 ** (2 - i), dtype=torch.complex64)) for i in range(3))
H4 = H4 + 0.3 * sum(torch.kron(torch.kron(torch.eye(2**i, dtype=torch.complex64), X), torch.eye(2 ** (3 - i), dtype=torch.complex64)) for i in range(4))
torch.manual_seed(0)
m = Circuit()
W(m)
opt = torch.optim.Adam(m.parameters(), 0.1)
psi = torch.zeros(3, 2, 2, 2, 2, dtype=torch.complex64)
psi[0, 0, 0, 0, 0] = psi[1, 1, 0, 0, 0] = psi[2, 0, 1, 0, 1] = 1
for s in range(6):
    out = m(psi).reshape(3, 16)
    e = (out.conj().unsqueeze(1) @ H4 @ out.unsqueeze(2)).real.sum()
    opt.zero_grad()
    e.backward()
    opt.step()
    print(s, float(e.detach()).hex(), M(m), m.theta.grad.stride(), out.is_conj(), out.grad_fn.name())
    with torch.no_grad():
        o = m(psi).reshape(3, 16)
        rho = o.unsqueeze(2) @ o.conj().unsqueeze(1)
        c = o.conj()
        print(s, H(o), H(rho), c.is_conj(), H(c @ H4), H(torch.matmul(rho, H4.mH)), H(rho @ rho.mH), H(torch.einsum("bi,ij,bj->b", c, H4, o)), H(torch.vdot(o[0], o[1])), H(c.mT @ o), H(torch.bmm(rho.mH, rho)))
        ent = torch.linalg.eigvalsh(rho[:, :4, :4])
        print(s, H(ent), H(torch.linalg.svdvals(o.view(3, 4, 4))), H(torch.linalg.matrix_exp(-1j * H4 * 0.1) @ o.T.conj()), H(c.imag), c.imag.is_neg(), H(c.imag * 2), H(torch.view_as_real(o)))
        v = o.clone().conj()
        v.mul_(1j)
        v.imag.add_(1)
        print(s, v.is_conj(), v._version, H(v), H(v.resolve_conj()), H(torch.angle(v)), H(v.conj_physical()), m.calls)
