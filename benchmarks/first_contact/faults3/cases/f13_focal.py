"""Dense classifier with a focal loss of gamma 0.5; easy examples saturate the sigmoid.
Source: kornia/kornia#918, clcarwin/focal_loss_pytorch#13, fizyr/keras-retinanet#706."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
EPS = 1e-6 if "--cured" in sys.argv else 0.0


class BinaryFocalLoss(nn.Module):
    def __init__(self, alpha=0.25, gamma=0.5):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, logits, target):
        p = logits.sigmoid()
        p_t = p * target + (1 - p) * (1 - target)
        ce = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        modulating = (1.0 - p_t + EPS).pow(self.gamma)  # FAULT
        alpha_t = self.alpha * target + (1 - self.alpha) * (1 - target)
        return (alpha_t * modulating * ce).mean()


model = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
criterion = BinaryFocalLoss()
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
losses = []
for step in range(20):
    images = torch.rand(4, 3, 40, 40)
    target = (images.mean((2, 3)) > 0.5).float()
    if step >= 9:
        images[0] *= 65535.0  # one camera delivers 16 bit
    loss = criterion(model(images), target)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
    print(f"{step} {losses[-1]:.4f}")
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
