"""Segmentation: cross-entropy plus an image-gradient loss on pred.argmax(1): the second loss is a number without gradient.
Source: https://github.com/wonbeomjang/mobile-hair-segmentation-pytorch/issues/3
Truth: requires_grad of the second loss.
Could a tool know: yes. A term of the loss comes from the model's output and has no graph.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
K = torch.tensor([[1., 0, -1], [2, 0, -2], [1, 0, -1]])[None, None]
def edges(x): return (F.conv2d(x, K) ** 2 + F.conv2d(x, K.transpose(2, 3)) ** 2 + 1e-6).sqrt()
class ImageGradientLoss(nn.Module):
    def forward(self, pred, image):
        p = pred.softmax(1)[:, 1:2] if HEALTHY else pred.argmax(1, keepdim=True).float()
        a, b = edges(image), edges(p); return (b * (1 - a / a.amax())).mean()
net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 2, 1)); opt = torch.optim.Adadelta(net.parameters(), 0.5); il = ImageGradientLoss()
for step in range(120):
    m = F.avg_pool2d(torch.randn(6, 1, 20, 20), 5, 1) > 0; x = m.float() + 0.4 * torch.randn(6, 1, 16, 16)
    p = net(x); g = il(p, x); loss = F.cross_entropy(p, m[:, 0].long()) + 0.5 * g
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH second loss has a gradient: {g.requires_grad}, its value {g:.3f}, loss {loss:.3f}")
