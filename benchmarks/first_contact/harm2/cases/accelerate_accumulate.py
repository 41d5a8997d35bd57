"""Accelerate with gradient accumulation, clipping, and save_state; files.

Source: https://github.com/huggingface/accelerate/pull/1971
"""
# PRELUDE
from accelerate import Accelerator
from accelerate.utils import set_seed
set_seed(4)
acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
m = net(); W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randn(16, 4)), 4, shuffle=True)
sch = torch.optim.lr_scheduler.LinearLR(opt, total_iters=4)
m, opt, dl, sch = acc.prepare(m, opt, dl, sch)
for ep in range(2):
    for x, y in dl:
        with acc.accumulate(m):
            loss = F.mse_loss(m(x), y)
            acc.backward(loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(m.parameters(), 1.0)
            opt.step(); sch.step(); opt.zero_grad()
        print(acc.sync_gradients, float(loss.detach()).hex())
print(M(m), R())
acc.save_model(m, "out")
