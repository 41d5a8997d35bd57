"""pygcn: normalisation of an adjacency with isolated nodes: degree to the -1/2 is inf, set to 0 afterwards; sparse COO and CSR products."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
seed(17)
n = 30
a = (torch.rand(n, n) < 0.1).float()
a = ((a + a.T) > 0).float()
a.fill_diagonal_(0)
a[[3, 7, 8]] = 0
a[:, [3, 7, 8]] = 0
d = a.sum(1).pow(-0.5)
print("inf", int(d.isinf().sum()), dig(d))
d[torch.isinf(d)] = 0.0
coo = (d[:, None] * a * d[None]).to_sparse().coalesce()
csr = coo.to_sparse_csr()


class GC(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.w = nn.Parameter(torch.randn(i, o) * 0.2)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, x @ self.w)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = GC(5, 16), GC(16, 3)

    def forward(self, x, adj):
        return F.log_softmax(self.b(F.dropout(F.relu(self.a(x, adj)), 0.5, self.training), adj), 1)


net = Net()
watch(net)
opt = torch.optim.Adam(net.parameters(), 0.01, weight_decay=5e-4)
x, y = torch.randn(n, 5), torch.randint(0, 3, (n,))
for epoch in range(30):
    net.train()
    out = net(x, coo if epoch % 2 else csr)
    deg = coo.to_dense().sum(1)
    inv = 1 / deg  # mean aggregation outside the model, inf for isolated nodes
    w = torch.where(deg > 0, inv, 0.0)
    loss = (F.nll_loss(out, y, reduction="none") * (w > 0)).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        acc = (net(x, csr).argmax(1) == y).float().mean()
    print(epoch, dig(loss, acc))
end(net, opt)
