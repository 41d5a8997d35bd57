# what: 2 ranks DDP: rank 1 has a nan batch; a flag is all-reduced and all ranks skip that update
# benign: yes
# ranks: 2
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank(); model = net(); W(model); ddp = nn.parallel.DistributedDataParallel(model); opt = torch.optim.Adam(model.parameters(), lr=.01); out = []
for s in range(8):
    x, y = batch(10 * s + r)
    if r == 1 and s in (3, 6): x[0, 0] = float("nan")
    opt.zero_grad(); l = F.mse_loss(ddp(x), y); bad = (~l.detach().isfinite()).float(); dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad.item(): out.append("skip"); continue
    l.backward(); opt.step(); out.append(float(l.detach()).hex())
open(f"rank{r}.txt", "w").write(f"{out} {M(model)} {H(opt.state_dict())} {R()}"); dist.barrier()
if r == 0: print(M(model))
dist.destroy_process_group()
