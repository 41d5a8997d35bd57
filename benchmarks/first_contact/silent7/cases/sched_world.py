"""accelerate: the schedule is made for the optimizer's steps, and prepared."""
import argparse, torch, torch.nn as nn, torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
accelerator = Accelerator(cpu=True, step_scheduler_with_optimizer=not args.healthy)
torch.manual_seed(0)
x = torch.randn(960, 16); y = torch.tanh(0.5 * x @ torch.randn(16, 4)).argmax(-1)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
epochs = 3
num_training_steps = epochs * len(loader) // accelerator.num_processes
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=num_training_steps)
model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
lrs = []
accelerator.print(f"{num_training_steps} steps")
for epoch in range(epochs):
    for bx, by in loader:
        loss = F.cross_entropy(model(bx), by)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        lrs.append(opt.param_groups[0]["lr"])
        opt.step()
        sched.step()
        opt.zero_grad()
    accelerator.print(f"epoch {epoch} loss {loss.item():.4f} lr {lrs[-1]:.2e}")
low = min(range(len(lrs)), key=lrs.__getitem__)
accelerator.print(f"{len(lrs)} steps, the rate is lowest at step {low} ({lrs[low]:.1e}) and {lrs[-1]:.1e} at the last one")
accelerator.wait_for_everyone()
accelerator.end_training()
