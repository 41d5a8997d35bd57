"""torch_geometric: a heterogeneous model by to_hetero (an fx transformation), then GNNExplainer, which trains masks through hooks in message passing."""
# PRELUDE
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv, SAGEConv, to_hetero

g = torch.Generator().manual_seed(3)
d = HeteroData()
d["paper"].x, d["author"].x = torch.randn(20, 5, generator=g), torch.randn(9, 5, generator=g)
d["paper", "cites", "paper"].edge_index = torch.randint(0, 20, (2, 50), generator=g)
d["author", "writes", "paper"].edge_index = torch.stack([torch.randint(0, 9, (40,), generator=g), torch.randint(0, 20, (40,), generator=g)])
d = T.ToUndirected()(d)


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)


m = to_hetero(G(), d.metadata(), aggr="sum")
with torch.no_grad():
    m(d.x_dict, d.edge_index_dict)
W(m)
opt = torch.optim.Adam(m.parameters(), lr=0.01)
y = torch.randint(0, 3, (20,), generator=g)
for s in range(6):
    opt.zero_grad()
    loss = F.cross_entropy(m(d.x_dict, d.edge_index_dict)["paper"], y)
    loss.backward()
    opt.step()
print(loss.item().hex(), M(m), len(str(m.code)))


class C(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = GCNConv(5, 8), GCNConv(8, 3)

    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)


c = C()
W(c)
e = d["paper", "cites", "paper"].edge_index
x = d["paper"].x
opt = torch.optim.Adam(c.parameters(), lr=0.01)
for s in range(6):
    opt.zero_grad()
    F.cross_entropy(c(x, e), y).backward()
    opt.step()
ex = Explainer(c, algorithm=GNNExplainer(epochs=12), explanation_type="model", node_mask_type="attributes", edge_mask_type="object",
               model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"))
r = ex(x, e, index=4)
print(H(r.node_mask, r.edge_mask), M(c), R())
