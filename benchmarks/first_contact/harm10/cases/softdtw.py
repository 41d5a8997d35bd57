#: what: soft-DTW as a custom autograd Function over NumPy, with a border of inf in the DP matrix saved for backward
#: benign: inf borders of saved tensors
#: source: https://github.com/Maghoumi/pytorch-softdtw-cuda/issues/18
# PRELUDE
def fwd(D, g):
    n, m = D.shape; R = np.full((n + 2, m + 2), np.inf); R[0, 0] = 0
    for j in range(1, m + 1):
        for i in range(1, n + 1):
            r = np.array([R[i-1, j-1], R[i-1, j], R[i, j-1]]) / -g; mx = r.max(); R[i, j] = D[i-1, j-1] - g * (np.log(np.exp(r - mx).sum()) + mx)
    return R
def bwd(D_, R, g):
    n, m = D_.shape; D = np.zeros((n + 2, m + 2)); D[1:n+1, 1:m+1] = D_; E = np.zeros((n + 2, m + 2)); E[-1, -1] = 1; R = R.copy(); R[:, -1] = -np.inf; R[-1, :] = -np.inf; R[-1, -1] = R[-2, -2]
    for j in range(m, 0, -1):
        for i in range(n, 0, -1):
            if np.isinf(R[i, j]): R[i, j] = -np.inf
            E[i, j] = sum(E[a, b] * np.exp((R[a, b] - R[i, j] - D[a, b]) / g) for a, b in ((i+1, j), (i, j+1), (i+1, j+1)))
    return E[1:n+1, 1:m+1]
class SDTW(torch.autograd.Function):
    @staticmethod
    def forward(ctx, D, g):
        R = torch.from_numpy(fwd(D.detach().numpy().astype(np.float64), g)); ctx.save_for_backward(D, R); ctx.g = g; return R[-2, -2].to(D.dtype)
    @staticmethod
    def backward(ctx, go):
        D, R = ctx.saved_tensors; return go * torch.from_numpy(bwd(D.numpy().astype(np.float64), R.numpy(), ctx.g)).to(D.dtype), None
m = nn.GRU(2, 8, batch_first=True); head = nn.Linear(8, 2); net = nn.ModuleList([m, head]); watch(net); opt = torch.optim.Adam(net.parameters(), 1e-2)
with np.errstate(all="ignore"):
    for step in range(12):
        x = torch.randn(1, 7, 2); y = torch.cumsum(torch.randn(1, 9, 2), 1) * 0.3; p = head(m(x)[0])
        D = ((p[0][:, None] - y[0][None]) ** 2).sum(-1); loss = SDTW.apply(D, 0.5); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
show(net, opt)
