"""torch.compile with aot_eager and eager: graphs, breaks, recompilations counted by dynamo, fullgraph, dynamic shapes; bits.

Source: https://github.com/pytorch/pytorch/issues/125694
"""
# PRELUDE
import torch._dynamo as dynamo
from torch._dynamo.utils import counters
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.n = nn.Linear(8, 16), nn.Linear(16, 4), nn.BatchNorm1d(16); self.k = 1
    def forward(self, x):
        x = torch.relu(self.n(self.a(x)))
        return self.b(x) * self.k
for backend, full in (("eager", True), ("aot_eager", True), ("aot_eager", False)):
    dynamo.reset(); counters.clear(); torch.manual_seed(0); m = Net(); c = torch.compile(m, backend=backend, fullgraph=full); W(m)
    opt = torch.optim.Adam(m.parameters(), 1e-2); print(train(c, opt, 3)); m.k = 2; print(train(c, opt, 2)); print(c(torch.ones(3, 8)).shape, M(m))
    print(dict(counters["stats"]), dict(counters["graph_break"]), type(c).__name__)
