"""A backend of the script's own prints each graph that it gets: nodes, placeholders, number of calls.

Source: https://github.com/pytorch/pytorch/pull/175527
"""
# PRELUDE
import torch._dynamo as dynamo
n = []
def mine(gm, args):
    n.append([(x.op, str(x.target).split(" at 0x")[0][:40]) for x in gm.graph.nodes]); print(len(args), [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)])
    return gm.forward
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(8, 4); self.r = nn.ReLU()
    def forward(self, x): return self.r(self.a(x)) + 1
torch.manual_seed(0); m = Net(); c = torch.compile(m, backend=mine); opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(c, opt, 3), len(n), M(m)); print("\n".join(map(str, n[0])))
s = torch.compile(lambda x: torch.sin(x) + 1, backend=mine); print(H(s(torch.ones(3))), len(n))
