"""Video features (b, c, t, h, w) are reshaped to (b*t, c, h*w) without a permute: channels and frames are mixed.
Source: https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/171
Truth: frame 0's output depends on frame 1.
Could a tool know: no: a reshape is legal; which axis is which is the user's knowledge.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class AttnBlock3D(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Conv3d(c, c, 1) for _ in range(4))

    def forward(self, x):
        b, c, t, h, w = x.shape
        def flat(z):
            if HEALTHY:
                z = z.permute(0, 2, 1, 3, 4)
            return z.reshape(b * t, c, h * w)
        q, k, v = flat(self.q(x)), flat(self.k(x)), flat(self.v(x))
        a = torch.softmax(q.transpose(1, 2) @ k * c**-0.5, -1)
        y = v @ a.transpose(1, 2)
        y = y.reshape(b, t, c, h, w).permute(0, 2, 1, 3, 4) if HEALTHY else y.reshape(b, c, t, h, w)
        return x + self.o(y)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.a, self.o = nn.Conv3d(1, 8, 1), AttnBlock3D(8), nn.Conv3d(8, 1, 1)

    def forward(self, x):
        return self.o(torch.tanh(self.a(self.i(x))))


model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    x = torch.randn(4, 1, 3, 4, 4)
    loss = nn.functional.mse_loss(model(x), x.mean((3, 4), keepdim=True).expand_as(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    z = x.clone()
    z[:, :, 1] += 1
    print(f"loss {loss.item():.4f} frame 0 depends on frame 1: {(model(x)[:, :, 0] - model(z)[:, :, 0]).abs().max():.2e}")
