# Hzfinfdu/Diffusion-BERT#30: only rank 0 loads the optimizer's state; the weights come to all by DDP's broadcast
# ranks: 2
import hashlib, os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 300
dist.init_process_group("gloo"); rank = dist.get_rank(); torch.manual_seed(28); net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)); step = 0; saved = torch.load("ddp.pt") if os.path.exists("ddp.pt") else None
if saved: net.load_state_dict(saved["net"]); step = saved["step"]
dist.barrier(); ddp = DDP(net); opt = torch.optim.Adam(ddp.parameters(), 1e-2)
if saved and (rank == 0 or not fault): opt.load_state_dict(saved["opt"])
while step < stop:
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(step))[rank]; loss = (ddp(x) - x.roll(1, 1)).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); step += 1
    both = loss.detach().clone(); dist.all_reduce(both)
    if rank == 0: print(step, repr(both.item()), flush=True)
    if step % 5 == 0:
        if rank == 0: torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step}, "ddp.pt")
        dist.barrier()
mine = b"".join(p.detach().numpy().tobytes() for p in net.parameters()); digests = [None, None]; dist.all_gather_object(digests, hashlib.sha256(mine).hexdigest()[:16])
if rank == 0: print("end", *digests)
dist.destroy_process_group()
