"""Complex covariance, pinv, lstsq, solve and eigenvectors of a mask-based beamformer outside the mask network, and its gradients, must keep their bits."""
# PRELUDE
class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(17, 24), nn.Linear(24, 34)

    def forward(self, spec):
        z = torch.log1p(spec.abs().mean(1)).transpose(1, 2)
        o = torch.sigmoid(self.b(torch.relu(self.a(z)))).transpose(1, 2)
        return o[:, :17], o[:, 17:]


def psd(x, mask):  # x: B C F T
    x = x.permute(0, 2, 1, 3)
    w = mask.unsqueeze(2)
    return (x * w) @ x.conj().transpose(-1, -2) / (w.sum(-1, keepdim=True) + 1e-8)


torch.manual_seed(3)
m = Mask()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
window = torch.hann_window(32)
for s in range(4):
    g = torch.Generator().manual_seed(s)
    wav = torch.randn(2, 3, 256, generator=g)
    spec = torch.stft(wav.reshape(-1, 256), 32, 16, window=window, return_complex=True).reshape(2, 3, 17, -1)
    ms, mn = m(spec)
    rs, rn = psd(spec, ms), psd(spec, mn)
    rn = rn + 1e-3 * torch.eye(3, dtype=rn.dtype)
    num = torch.linalg.solve(rn, rs)
    w = num[..., 0] / (num.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) + 1e-8)
    est = torch.einsum("bfc,bcft->bft", w.conj(), spec)
    out = torch.istft(est, 32, 16, window=window, length=256)
    loss = F.mse_loss(out, wav[:, 0]) + (torch.linalg.pinv(rn) - torch.linalg.inv(rn)).abs().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, "loss", float(loss.detach()).hex(), M(m))
    with torch.no_grad():
        p = torch.linalg.pinv(rn)
        print(s, "pinv", H(p), p.stride(), p.is_conj(), "hermitian", H(torch.linalg.pinv(rn, hermitian=True)), "old", H(torch.pinverse(rs)))
        q = torch.linalg.lstsq(rs + torch.eye(3), rn[..., :2])
        print(s, "lstsq", H(q.solution), q.residuals.shape, q.rank)
        k = torch.linalg.lstsq(torch.cat([rs, rn], -2), torch.cat([rn, rs], -2)[..., :1], driver="gelsd")
        print(s, "tall", H(k.solution), H(k.residuals), k.rank, H(k.singular_values))
        e, v = torch.linalg.eigh(rn)
        print(s, "gev", H(e), H(v.abs()), H(torch.linalg.eigvalsh(rs)), H(torch.linalg.svdvals(rs)), H(torch.linalg.matrix_norm(rs, 2)), H(torch.linalg.matrix_norm(rs, "nuc")))
        print(s, "mm", H(rs.conj() @ rn), H(torch.matmul(rs, rn.mH)), H(torch.matmul(rs.mH, rn[0, 0])), H(rn[0, 0] @ rs.conj()), H(torch.tensordot(w.conj(), spec, ([2], [1]))))
