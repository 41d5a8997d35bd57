#: what: soft-DTW in pure torch: a list-of-lists DP whose borders are inf tensors, logsumexp over them
#: benign: inf tensors in the graph
#: source: https://github.com/Sleepwalking/pytorch-softdtw/issues/8
# PRELUDE
INF = torch.tensor(float("inf"))
def sdtw(D, g=0.5):
    n, m = D.shape; R = [[INF] * (m + 1) for _ in range(n + 1)]; R[0][0] = torch.tensor(0.0)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            c = [r for r in (R[i-1][j-1], R[i-1][j], R[i][j-1])]
            R[i][j] = D[i-1, j-1] - g * torch.logsumexp(torch.stack([-a / g for a in c]), 0)
    return R[n][m]
net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2)); watch(net); opt = torch.optim.Adamax(net.parameters(), 1e-2)
for step in range(8):
    p = net(torch.randn(6, 3)); y = torch.randn(5, 2); loss = sdtw(torch.cdist(p, y) ** 2); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item(), sha([q.grad for q in net.parameters()]))
show(net, opt)
