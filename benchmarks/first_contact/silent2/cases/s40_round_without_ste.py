"""Learned compression: the code is torch.round(z), whose gradient is exactly zero: the encoder is not trained.
Source: https://github.com/Justin-Tan/generative-compression/issues/51
Truth: the encoder does not move.
Could a tool know: yes. All gradients of the encoder are exactly 0 in every step.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class Codec(nn.Module):
    def __init__(self):
        super().__init__(); self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1)); self.decoder = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
    def forward(self, x):
        z = 4 * self.encoder(x); w = z + (torch.round(z) - z).detach() if HEALTHY else torch.round((z.round() - z).detach() + z)
        return self.decoder(w)
net = Codec(); first = net.encoder[0].weight.detach().clone(); opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(140):
    x = F.avg_pool2d(torch.randn(8, 1, 18, 18), 3, 1); loss = F.mse_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH encoder moved {(net.encoder[0].weight - first).abs().max():.5f} loss {loss:.4f}")
