"""Deep Graph Infomax, ChebConv, SAGPool, EdgePool, GPS and correct-and-smooth: corrupted orders, kept nodes, sparse operators, gradients and random states must stay the same."""
# PRELUDE
import torch_geometric.nn as gnn
from torch_geometric.utils import dropout_edge, get_laplacian, negative_sampling, scatter, softmax, to_dense_adj, to_undirected

torch.manual_seed(0)
g0 = torch.Generator().manual_seed(0)
n = 24
ei = to_undirected(torch.randint(0, n, (2, 50), generator=g0))
x, y = torch.randn(n, 6, generator=g0), torch.randint(0, 3, (n,), generator=g0)
batchv = torch.arange(n) // 8
ei = ei[:, batchv[ei[0]] == batchv[ei[1]]]


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.p = gnn.ChebConv(6, 12, 3), nn.PReLU(12)

    def forward(self, x, e):
        return self.p(self.c(x, e))


dgi = gnn.DeepGraphInfomax(12, Enc(), lambda z, *a, **k: z.mean(0).sigmoid(), lambda x, e: (x[torch.randperm(x.size(0))], e))


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = gnn.GPSConv(6, gnn.GINConv(nn.Linear(6, 6)), heads=2, dropout=0.1)
        self.s, self.e, self.t = gnn.SAGPooling(6, 0.6), gnn.EdgePooling(6), gnn.TransformerConv(6, 6, heads=2, concat=False, beta=True)
        self.a = gnn.aggr.MultiAggregation(["mean", "std", "median", gnn.aggr.SoftmaxAggregation(learn=True), "max", "min", "var"])
        self.o = nn.Linear(42, 3)

    def forward(self, x, e, b):
        x = self.g(x, e, b)
        x, e, _, b, perm, score = self.s(x, e, None, b)
        x, e, b, un = self.e(x, e, b)
        x = self.t(x, e)
        return self.o(self.a(x, b)), perm, score


pool = Pool()
W(dgi)
W(pool)
od, op = torch.optim.Adam(dgi.parameters(), 1e-2), torch.optim.Adam(pool.parameters(), 1e-2)
for s in range(4):
    e2, kept = dropout_edge(ei, 0.2)
    pos, neg, summ = dgi(x, e2)
    loss = dgi.loss(pos, neg, summ)
    od.zero_grad()
    loss.backward()
    od.step()
    print(s, "dgi", float(loss.detach()).hex(), M(dgi), H(kept), R())
    out, perm, score = pool(x, ei, batchv)
    l2 = F.cross_entropy(out, torch.arange(3))
    op.zero_grad()
    l2.backward()
    op.step()
    print(s, "pool", float(l2.detach()).hex(), M(pool), perm.tolist(), H(score), R())
    with torch.no_grad():
        z, _, _ = dgi(x, ei)
        att = softmax(z[ei[0], 0], ei[1], num_nodes=n)
        lap = get_laplacian(ei, normalization="sym", num_nodes=n)
        cs = gnn.CorrectAndSmooth(3, 0.8, 3, 0.7, autoscale=s % 2 == 0, scale=1.0)
        soft = z[:, :3].softmax(1)
        soft = cs.smooth(cs.correct(soft, y[:8], torch.arange(n) < 8, ei), y[:8], torch.arange(n) < 8, ei)
        lp = gnn.LabelPropagation(3, 0.5)(y, ei, mask=torch.arange(n) < 8)
        print(s, H(z), H(att), H(lap), H(soft), H(lp), H(to_dense_adj(ei, batchv)), H(scatter(z, batchv, reduce="mul")), H(negative_sampling(ei, n, 10)), H(torch.linalg.eigvalsh(to_dense_adj(ei)[0])))
