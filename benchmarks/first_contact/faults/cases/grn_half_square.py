"""Global response normalisation (ConvNeXt V2) in float16: the sum of squares overflows, and inf / inf is nan.
Source: leondgarse/keras_cv_attention_models#129, huggingface/transformers#9295."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class GRN(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(w)), nn.Parameter(torch.zeros(w))

    def forward(self, x):
        h = x.float() if CURED else x
        energy = (h * h).sum((1, 2), keepdim=True)  # FAULT
        g = energy.sqrt()
        n = g / (g.mean(-1, keepdim=True) + 1e-6)
        return (self.gamma * (h * n) + self.beta + h).to(x.dtype)


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.dw, self.norm = nn.Conv2d(w, w, 3, padding=1, groups=w), nn.LayerNorm(w)
        self.up, self.grn, self.down = nn.Linear(w, 4 * w), GRN(4 * w), nn.Linear(4 * w, w)

    def forward(self, x):
        h = self.norm(self.dw(x).permute(0, 2, 3, 1))
        return x + self.down(self.grn(torch.nn.functional.gelu(self.up(h)))).permute(0, 3, 1, 2)


net = nn.Sequential(nn.Conv2d(3, 8, 4, 4), Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(4):
    if step == 2:
        with torch.no_grad():
            net[2].up.weight[4] = 60.0
            net[2].up.bias[4] = 200.0
    x, y = torch.randn(2, 3, 32, 32).half(), torch.randint(3, (2,))
    loss = nn.functional.cross_entropy(net(x).float(), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
