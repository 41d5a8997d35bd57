"""A message-passing network with index_add_, scatter_reduce and sparse.mm; bits of everything.

Source: invented, after PyTorch Geometric's MessagePassing
"""
# PRELUDE
class Conv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x, src, dst, adj):
        msg = torch.relu(self.a(x[src]))
        out = torch.zeros_like(x).index_add_(0, dst, msg)
        mx = torch.zeros_like(x).scatter_reduce(0, dst[:, None].expand_as(msg), msg, "amax", include_self=False)
        return torch.relu(self.b(out + mx) + torch.sparse.mm(adj, x))
class GNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Conv(8) for _ in range(3))
    def forward(self, x, src, dst, adj):
        for l in self.layers:
            x = x + l(x, src, dst, adj)
        return x.mean(0)
torch.manual_seed(0)
m = GNN(); W(m)
src, dst = torch.randint(0, 10, (30,)), torch.randint(0, 10, (30,))
adj = torch.sparse_coo_tensor(torch.stack([dst, src]), torch.rand(30), (10, 10)).coalesce()
opt = torch.optim.Adam(m.parameters(), lr=1e-2)
for s in range(5):
    loss = (m(torch.randn(10, 8), src, dst, adj) - 1).square().sum()
    opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex())
print(M(m), H(adj), R())
