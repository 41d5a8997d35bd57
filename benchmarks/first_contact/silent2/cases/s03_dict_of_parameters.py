"""Relational GNN by hand: per-relation weights are nn.Parameters and Linears in plain dicts, so parameters() has only the head.
Source: https://github.com/pytorch/pytorch/issues/632
Truth: number of parameters in the optimizer; relation weights unchanged.
Could a tool know: yes. Tensors held by a module's dict get gradients and no optimizer has them.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
N, R, D = 60, 3, 8

class RGCN(nn.Module):
    def __init__(self):
        super().__init__()
        w, rel = {}, {}
        for r in range(R):
            w[str(r)] = nn.Parameter(1 + 0.1 * torch.randn(1, 16)); rel[str(r)] = nn.Linear(D, 16)
        self.waggrs = nn.ParameterDict(w) if HEALTHY else w
        self.list_relations = nn.ModuleDict(rel) if HEALTHY else rel
        self.head = nn.Linear(16, 4)
    def forward(self, x, adj):
        h = sum(adj[r] @ self.list_relations[str(r)](x) * self.waggrs[str(r)] for r in range(R))
        return self.head(h.relu())

model = RGCN(); first = model.list_relations["0"].weight.detach().clone()
opt = torch.optim.Adam(model.parameters(), 1e-2)
g = torch.Generator().manual_seed(1)
true = torch.randn(R, D, 4, generator=g)
for step in range(150):   # a batch is a freshly sampled subgraph
    x = torch.randn(N, D); adj = (torch.rand(R, N, N) < 0.05).float(); adj = adj / adj.sum(-1, keepdim=True).clamp(min=1)
    y = sum(adj[r] @ x @ true[r] for r in range(R)).argmax(1)
    loss = F.cross_entropy(model(x, adj), y)
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH in optimizer {sum(p.numel() for p in model.parameters())} relation 0 moved {(model.list_relations['0'].weight - first).abs().max():.3f} loss {loss:.3f}")
