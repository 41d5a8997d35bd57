"""Under torchrun each rank trains alone first; the process group and DDP come later, are destroyed, and each trains alone again."""
# PRELUDE
import torch.distributed as dist

r = int(os.environ["RANK"])
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
alone = train(m, opt, 3 + 2 * r, 50 * r)
dist.init_process_group("gloo")
out = [None, None]
dist.all_gather_object(out, alone)
d = nn.parallel.DistributedDataParallel(m)
o2 = torch.optim.Adam(d.parameters(), 1e-3)
both = train(d, o2, 4, 20 * r)
dist.all_gather_object(out, (out[r], both, M(m)))
if r == 0:
    print(out, flush=True)
dist.barrier()
dist.destroy_process_group()
again = train(m, opt, 2 + r, 30 * r)
with open(f"rank{r}.txt", "w") as f:
    f.write(f"{again} {M(m)} {R()}\n")
