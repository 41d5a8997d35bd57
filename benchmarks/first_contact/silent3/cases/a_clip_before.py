"""clip_grad_norm_ is called between zero_grad() and backward(): there is nothing to clip, and the step uses raw gradients.
Source: https://github.com/Cranial-XIX/FAMO/issues/4
Truth: the norm of the gradients at opt.step() exceeds max_norm=0.05 in all steps (healthy: never).
Could a tool know: yes: clipping sees no gradients, and comes before the backward whose gradients are used.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU())
        self.a, self.b = nn.Linear(48, 1), nn.Linear(48, 5)

    def forward(self, x):
        h = self.trunk(x)
        return self.a(h), self.b(h)


model = Shared()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
w1, w2 = torch.randn(16, 1), torch.randn(16, 5)
above = 0
for step in range(150):
    x = torch.randn(32, 16)
    ra, rb = model(x)
    loss = nn.functional.mse_loss(ra, x @ w1) + nn.functional.cross_entropy(rb, (x @ w2).argmax(1))
    opt.zero_grad()
    if not HEALTHY:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.05)
    loss.backward()
    if HEALTHY:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.05)
    above += sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5 > 0.051
    opt.step()
print(f"loss {loss.item():.4f} steps with a norm above the limit: {above}")
