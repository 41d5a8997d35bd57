"""DCGAN on 1-D signals: opt_d.zero_grad() comes after opt_d.step() only, so what the generator's backward leaves in D goes into D's next step.
Source: https://github.com/Lightning-AI/pytorch-lightning/issues/591 (also issue 557, OmniTokenizer issue 15, leffff/FlowModels issue 3)
Truth: norm of D's gradients right before D's backward (0 expected).
Could a tool know: yes. D's first backward for its step begins with gradients that another loss has left.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Unflatten(1, (16, 4)), nn.ConvTranspose1d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(8, 1, 4, 2, 1), nn.Tanh())
D = nn.Sequential(nn.Conv1d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv1d(16, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1))
og, od = torch.optim.Adam(G.parameters(), 5e-4, (0.5, 0.999)), torch.optim.Adam(D.parameters(), 5e-4, (0.5, 0.999))
one, zero = torch.ones(32, 1), torch.zeros(32, 1); bce = F.binary_cross_entropy_with_logits; left = 0.0
for step in range(150):
    fake = G(torch.randn(32, 8)); og.zero_grad(); bce(D(fake), one).backward(); og.step()
    real = torch.sin(torch.arange(16.0) * 0.5 + torch.rand(32, 1, 1) * 6.28) * 0.8
    if HEALTHY: od.zero_grad()
    left = max(left, max((p.grad.norm().item() if p.grad is not None else 0.0) for p in D.parameters()))
    loss = bce(D(real), one) + bce(D(fake.detach()), zero); loss.backward(); od.step(); od.zero_grad()
print(f"TRUTH largest gradient in D before its backward {left:.4f} D's loss {loss:.3f}")
