"""From mosaicml/composer issue 372.
Wrong: _sample_drop multiplies by keep_probability out of training, but it is called only in training: residuals are too large in evaluation.
Could know: no.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def sample_drop(x, rate, training):
    if not training: return x * (1 - rate)
    return x * (torch.rand(x.shape[0], 1) > rate).float()
class Block(nn.Module):
    def __init__(self, d, rate): super().__init__(); self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); self.rate = rate
    def forward(self, x):
        out = self.f(x)
        if (self.rate if H else self.training and self.rate): out = sample_drop(out, self.rate, self.training)
        return x + out
m = nn.Sequential(nn.Linear(10, 32), *[Block(32, .5) for _ in range(6)], nn.Linear(32, 1)); opt = torch.optim.AdamW(m.parameters(), 2e-3); w = torch.randn(10, 1)
for step in range(150):
    x = torch.randn(128, 10); loss = F.mse_loss(m(x), torch.sin(x @ w)); opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
m.eval()
with torch.no_grad(): x = torch.randn(2000, 10); print("check: mean |residual| in eval / with keep_prob", m[1](m[0](x)).sub(m[0](x)).abs().mean().item() / (m[1].f(m[0](x)).abs().mean().item() * .5), "eval loss", F.mse_loss(m(x), torch.sin(x @ w)).item())
