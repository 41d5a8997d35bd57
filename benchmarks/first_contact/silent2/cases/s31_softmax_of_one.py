"""Binary classifier with one output and a softmax over it: the output is 1 whatever the input, and nothing is learned.
Source: https://github.com/FluxML/Flux.jl/issues/1546 (also marian-dev issue 21)
Truth: outputs' spread; accuracy.
Could a tool know: yes. A softmax over a dimension of size 1; all gradients are exactly 0.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid() if HEALTHY else nn.Softmax(dim=1))
opt = torch.optim.Adam(net.parameters(), 3e-3); W = torch.randn(10)
for step in range(120):
    x = torch.randn(64, 10); y = (x @ W > 0).float()[:, None]; p = net(x); loss = F.mse_loss(p, y); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH spread of outputs {p.std():.4f} accuracy {((p > 0.5) == (y > 0.5)).float().mean():.2f}")
