"""PyG: a graph autoencoder with negative sampling, and a temporal graph network with TGNMemory (state kept between batches, detached, reset), identity messages, last aggregator."""
# PRELUDE
from torch_geometric.nn import GCNConv, VGAE, TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator
from torch_geometric.utils import negative_sampling
ei = torch.randint(0, 12, (2, 40))
x = torch.randn(12, 8)
class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.mu, self.ls = GCNConv(8, 8, cached=True), GCNConv(8, 4), GCNConv(8, 4)
    def forward(self, x, e):
        h = self.c(x, e).relu()
        return self.mu(h, e), self.ls(h, e)
m = VGAE(Enc())
W(m)
opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(5):
    m.train()
    opt.zero_grad()
    z = m.encode(x, ei)
    loss = m.recon_loss(z, ei, negative_sampling(ei, 12, 20)) + m.kl_loss() / 12
    loss.backward()
    opt.step()
print(float(loss).hex(), m.test(z, ei, negative_sampling(ei, 12, 20)), M(m))
mem = TGNMemory(12, 6, 8, 4, message_module=IdentityMessage(6, 8, 4), aggregator_module=LastAggregator())
gnn, dec = TransformerConv(8, 8, heads=2, dropout=0.1, edge_dim=None), nn.Linear(32, 1)
both = nn.ModuleDict({"mem": mem, "gnn": gnn, "dec": dec, "lin": nn.Linear(8, 8)})
W(both)
opt = torch.optim.Adam(both.parameters(), 1e-2)
for ep in range(2):
    both.train()
    mem.reset_state()
    for b in range(4):
        src, dst, neg = (torch.randint(0, 12, (6,)) for _ in range(3))
        t, msg = torch.arange(6) + b * 6, torch.randn(6, 6)
        ids = torch.cat([src, dst, neg]).unique()
        assoc = torch.empty(12, dtype=torch.long)
        assoc[ids] = torch.arange(len(ids))
        opt.zero_grad()
        z, last = mem(ids)
        z = gnn(both.lin(z), torch.stack([torch.randint(0, len(ids), (8,)), torch.randint(0, len(ids), (8,))]))
        pos, ng = dec(torch.cat([z[assoc[src]], z[assoc[dst]]], -1)), dec(torch.cat([z[assoc[src]], z[assoc[neg]]], -1))
        loss = F.binary_cross_entropy_with_logits(pos, torch.ones_like(pos)) + F.binary_cross_entropy_with_logits(ng, torch.zeros_like(ng))
        mem.update_state(src, dst, t, msg)
        loss.backward()
        opt.step()
        mem.detach()
    print(ep, float(loss).hex(), H(mem.memory, last))
both.eval()
print(H(mem(torch.arange(12))[0]), M(both), R())
