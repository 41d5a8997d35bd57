# what: 2 ranks ZeroRedundancyOptimizer (states split, some ranks' optimizers empty for small groups), consolidated state saved
# ranks: 2
# PRELUDE
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("gloo"); r = dist.get_rank(); model = net(); W(model); ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True); opt = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=.01); out = []
for s in range(6):
    x, y = batch(10 * s + r); opt.zero_grad(set_to_none=s % 2 == 0); l = F.mse_loss(ddp(x), y); l.backward(); opt.step(); out.append(float(l.detach()).hex())
opt.consolidate_state_dict(0)
if r == 0: torch.save({"m": model.state_dict(), "o": opt.state_dict()}, "zero.pt"); print(H(opt.state_dict()["state"]))
open(f"rank{r}.txt", "w").write(f"{out} {M(model)} {R()}"); dist.barrier(); dist.destroy_process_group()
