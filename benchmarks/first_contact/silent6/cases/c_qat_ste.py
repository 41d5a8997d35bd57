"""Healthy: quantization-aware training with a straight-through rounding, float for 150 steps, then 4-bit weights: the loss jumps.  450 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
class Q(nn.Linear):
    bits = None
    def forward(self, x):
        w = self.weight
        if Q.bits: s = w.detach().abs().amax(1, keepdim=True) / (2 ** (Q.bits - 1) - 1); w = w + ((w / s).round() * s - w).detach()
        return F.linear(x, w, self.bias)
n = nn.Sequential(Q(10, 48), nn.ReLU(), Q(48, 48), nn.ReLU(), Q(48, 3)); opt = torch.optim.Adam(n.parameters(), 2e-3); w = torch.randn(10, 3)
for step in range(450):
    if step == 150: Q.bits = 4
    if step == 400: [p.requires_grad_(False) for k, p in n.named_parameters() if "bias" in k]
    x = torch.randn(64, 10); loss = F.mse_loss(n(x), torch.tanh(x @ w)); opt.zero_grad(); loss.backward(); opt.step()
    if step % 50 == 0: print(step, loss.item())
