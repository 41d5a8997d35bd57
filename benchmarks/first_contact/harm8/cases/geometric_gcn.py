# what: torch_geometric GCN/GAT/edge-conv with max aggregation (empty nodes: -inf filled), isolated nodes degree^-0.5 = inf masked
# benign: yes
# PRELUDE
from torch_geometric.nn import GCNConv, GATConv, EdgeConv, global_max_pool
from torch_geometric.data import Data, Batch
from torch_geometric.utils import softmax, degree
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = GCNConv(4, 8, cached=False); self.b = GATConv(8, 4, heads=2, dropout=.2); self.c = EdgeConv(nn.Sequential(nn.Linear(16, 8)), aggr="max"); self.o = nn.Linear(8, 3)
    def forward(self, d):
        x = self.a(d.x, d.edge_index).relu(); x = self.b(x, d.edge_index); x = self.c(x, d.edge_index); deg = degree(d.edge_index[0], d.num_nodes); inv = deg.pow(-.5); inv[inv == float("inf")] = 0
        return self.o(global_max_pool(x * inv[:, None], d.batch))
def graph(s):
    g = torch.Generator().manual_seed(s); return Data(x=torch.randn(6, 4, generator=g), edge_index=torch.randint(0, 5, (2, 9), generator=g), y=torch.randint(0, 3, (1,), generator=g))
m = Net(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(6):
    b = Batch.from_data_list([graph(4 * s + k) for k in range(4)]); opt.zero_grad(); l = F.cross_entropy(m(b), b.y); l.backward(); opt.step(); print(float(l.detach()).hex())
m.eval()
with torch.no_grad(): print(H(m(b)), H(softmax(torch.tensor([1., 2., -float("inf")]), torch.tensor([0, 0, 1]))))
print(M(m), R())
