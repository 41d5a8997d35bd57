"""DDP on 2 gloo ranks, no_sync accumulation, unequal data; weights of both ranks, files by rank.

Source: https://github.com/huggingface/picotron/issues/39
"""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank()
m = net(r); W(m); d = DDP(m); opt = torch.optim.Adam(d.parameters(), 1e-2); f = open(f"r{r}.txt", "w")
for s in range(6):
    x, y = batch(10 * r + s)
    if s % 2 == 0:
        with d.no_sync(): loss = F.mse_loss(d(x), y); loss.backward()
    else:
        loss = F.mse_loss(d(x), y); loss.backward(); torch.nn.utils.clip_grad_norm_(d.parameters(), 1.0); opt.step(); opt.zero_grad()
    print(float(loss.detach()).hex(), file=f)
print(M(m), R(), sorted(k for k in os.environ if k.startswith(("RANK", "WORLD", "LOCAL"))), sys.argv, file=f); f.close(); dist.destroy_process_group()
