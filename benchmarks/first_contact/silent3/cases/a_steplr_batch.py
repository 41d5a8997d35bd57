"""StepLR(step_size=epochs // 2) is stepped after each batch: after a few dozen batches the rate is 1e-10 and training is over.
Source: https://github.com/Lornatang/SRGAN-PyTorch/issues/1
Truth: lr ends at about 1e-22 (healthy 1e-3 to 1e-4), and the weights have the same bits from step 60 on.
Could a tool know: yes: the rate has fallen by 10 orders of magnitude in the first epoch and weights no longer move.
"""
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
EPOCHS = 8


class SR(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(1, 16, 3, padding=1)
        self.body = nn.Conv2d(16, 16, 3, padding=1)
        self.tail = nn.Conv2d(16, 4, 3, padding=1)
        self.up = nn.PixelShuffle(2)

    def forward(self, x):
        h = torch.relu(self.head(x))
        return self.up(self.tail(h + torch.relu(self.body(h))))


hr = nn.functional.interpolate(torch.randn(160, 1, 4, 4), scale_factor=4, mode="bicubic")
lo = nn.functional.avg_pool2d(hr, 2)
loader = DataLoader(TensorDataset(lo, hr), batch_size=8, shuffle=True)
model = SR()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=EPOCHS // 2, gamma=0.1)
for epoch in range(EPOCHS):
    for a, b in loader:
        loss = nn.functional.l1_loss(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if not HEALTHY:
            sched.step()
    if HEALTHY:
        sched.step()
    if epoch == 3:
        mid = model.body.weight.detach().clone()
print(f"loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.1e} moved since epoch 4 {(model.body.weight - mid).abs().max():.2e}")
