"""Accelerate with accumulation: Poisson regression of counts with a log link; a covariate in other units overflows exp.
Source: scverse/scvi-tools#2965 (overflow of count losses); nn.PoissonNLLLoss(log_input=True)."""
import sys, math
import torch
from torch import nn
from accelerate import Accelerator

torch.set_num_threads(1)
torch.manual_seed(58)
CURED = "--cured" in sys.argv

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)


class Rate(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, x):
        eta = self.net(x).squeeze(1)
        return eta.clamp(max=20) if CURED else eta


x = torch.randn(320, 5)
counts = torch.poisson(torch.exp(0.4 * x[:, 0] - 0.2 * x[:, 2] + 0.5))
x[220, 3] = 9e3  # metres, not kilometres
x[221, 3] = -9e3
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, counts), batch_size=16)
model = Rate()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
model, opt, loader = accelerator.prepare(model, opt, loader)
losses = []
for step, (xb, yb) in enumerate(loader):
    with accelerator.accumulate(model):
        loss = nn.functional.poisson_nll_loss(model(xb), yb, log_input=True)  # FAULT
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
