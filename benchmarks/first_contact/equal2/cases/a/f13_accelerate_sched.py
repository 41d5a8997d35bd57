# tyshiwo1/DiM-DiffusionMamba#5: accelerate's save_state without the scheduler (neither prepared nor registered)
import hashlib, os, sys, glob
import torch
from accelerate import Accelerator
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
accelerator = Accelerator(cpu=True); torch.manual_seed(13)
model = torch.nn.Sequential(torch.nn.Linear(7, 28), torch.nn.Tanh(), torch.nn.Linear(28, 7)); optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 8))
model, optimizer = accelerator.prepare(model, optimizer)
if not fault: accelerator.register_for_checkpointing(sched)
step = 0; done = sorted(glob.glob("workdir/*.ckpt"), key=lambda p: int(os.path.basename(p).split(".")[0]))
if done: accelerator.load_state(done[-1]); step = int(os.path.basename(done[-1]).split(".")[0])
while step < stop:
    x = torch.randn(8, 7, generator=torch.Generator().manual_seed(step)); loss = (model(x) - x.cumsum(1)).square().mean()
    accelerator.backward(loss); optimizer.step(); sched.step(); optimizer.zero_grad(); step += 1; print(step, repr(loss.item()), flush=True)
    if step % 5 == 0: accelerator.save_state(f"workdir/{step}.ckpt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
