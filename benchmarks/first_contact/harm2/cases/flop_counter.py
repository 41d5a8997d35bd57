"""torch's FlopCounterMode around forward and backward: the total and by module.

Source: https://github.com/pytorch/pytorch/pull/84774 (stack of modes)
"""
# PRELUDE
from torch.utils.flop_counter import FlopCounterMode
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x): return self.b(torch.relu(self.a(x)))
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); train(m, opt, 1)
with FlopCounterMode(m, display=False, depth=3) as c: print(train(m, opt, 2))
print(c.get_total_flops(), {k: {str(o): n for o, n in sorted(v.items(), key=str)} for k, v in sorted(c.get_flop_counts().items())}, M(m)); print(c.get_table(2))
