"""torch_geometric: GATConv and global pooling on mini-batches of graphs (PyG's DataLoader), dropout on attention; weights, embeddings, random states."""
# PRELUDE
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GINConv, TopKPooling, global_mean_pool

g = torch.Generator().manual_seed(3)
graphs = []
for k in range(24):
    n = 5 + k % 4
    e = torch.randint(0, n, (2, 3 * n), generator=g)
    graphs.append(Data(x=torch.randn(n, 6, generator=g), edge_index=e, y=torch.tensor([k % 3])))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = GATConv(6, 8, heads=2, dropout=0.3)
        self.pool = TopKPooling(16, ratio=0.7)
        self.b = GINConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)), train_eps=True)
        self.out = nn.Linear(16, 3)

    def forward(self, data):
        x = F.elu(self.a(data.x, data.edge_index))
        x, e, _, b, perm, score = self.pool(x, data.edge_index, None, data.batch)
        x = self.b(x, e)
        return self.out(global_mean_pool(x, b)), perm


m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), lr=0.01)
for epoch in range(3):
    total = 0.0
    for d in DataLoader(graphs, batch_size=8, shuffle=True):
        opt.zero_grad()
        y, perm = m(d)
        loss = F.cross_entropy(y, d.y)
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, total.hex(), H(perm), R())
m.eval()
with torch.no_grad():
    print(M(m), H([m(d)[0] for d in DataLoader(graphs, batch_size=8)]))
