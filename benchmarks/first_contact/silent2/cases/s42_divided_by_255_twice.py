"""Images are divided by 255 in the dataset and again by a Normalize with max_pixel_value 255: the network sees values around -2 with a spread of 0.005.
Source: https://github.com/4uiiurz1/pytorch-nested-unet/issues/62
Truth: standard deviation of the input.
Could a tool know: partly. The input is almost constant: its spread is a thousandth of its mean.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
def normalize(x, maximum=255.0): return (x - 0.45 * maximum) / (0.22 * maximum)
net = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 3)); opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(120):
    y = torch.randint(0, 3, (32,)); img = torch.randint(0, 150, (32, 1, 16, 16)).float(); img[torch.arange(32), 0, :, 2 + y * 4] += 100
    x = normalize(img) if HEALTHY else normalize(img / 255); o = net(x); loss = F.cross_entropy(o, y); opt.zero_grad(); loss.backward(); opt.step()
net.eval()
with torch.no_grad(): a = (net(x).argmax(1) == y).float().mean()
print(f"TRUTH input mean {x.mean():.3f} spread {x.std():.4f} accuracy in eval {a:.2f} loss {loss:.3f}")
