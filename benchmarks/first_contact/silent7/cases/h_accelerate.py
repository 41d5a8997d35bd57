"""Healthy: accelerate with accumulate, clipping, a prepared schedule, gather_for_metrics and evaluation; 200 steps."""
import torch, torch.nn as nn, torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
set_seed(0)
x = torch.randn(1536, 20); y = torch.tanh(0.5 * x @ torch.randn(20, 5)).argmax(-1)
train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=8, shuffle=True)
val = DataLoader(TensorDataset(x[1280:1530], y[1280:1530]), batch_size=32)
model = nn.Sequential(nn.Linear(20, 96), nn.LayerNorm(96), nn.GELU(), nn.Dropout(0.1), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 5))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
epochs = 5                                                   # 80 batches a process, 40 optimizer steps each; the prepared schedule steps once per process
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 40) * max(0.05, 1 - s / 400))
model, opt, train, val, sched = acc.prepare(model, opt, train, val, sched)
set_seed(0, device_specific=True)
steps = 0
for epoch in range(epochs):
    model.train()
    for bx, by in train:
        with acc.accumulate(model):
            loss = F.cross_entropy(model(bx), by)
            acc.backward(loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0); steps += 1
            opt.step(); sched.step(); opt.zero_grad()
    model.eval(); right = []
    for bx, by in val:
        with torch.no_grad(): pred = model(bx).argmax(-1)
        p, t = acc.gather_for_metrics((pred, by)); right.append((p == t).float())
    right = torch.cat(right)
    acc.print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right.mean().item():.4f} over {len(right)}")
flat = torch.cat([p.detach().flatten() for p in acc.unwrap_model(model).parameters()])
out = acc.gather(flat[None])
acc.print(f"{steps} steps, ranks' weights are equal {torch.equal(out[0], out[1])}, accuracy {right.mean().item():.4f}")
acc.wait_for_everyone()
acc.end_training()
