# opts: --check again:every=1
# truth: healthy (pytorch/examples time_sequence_prediction: LBFGS with strong Wolfe, closure)
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)); o = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe"); x = torch.randn(32, 4); y = x.sin().sum(1, keepdim=True)
def closure(): o.zero_grad(); l = (m(x) - y).square().mean(); l.backward(); return l
for C.STEP in range(4): print(float(o.step(closure)))
C.finish(m)
