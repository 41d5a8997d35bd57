"""torchrun with each rank's streams redirected into files; the script reads TORCHELASTIC variables, ranks print, loggers per rank; the files' texts are what is compared (by rank 0 after a barrier)."""
# PRELUDE
import torch.distributed as dist, glob, logging
dist.init_process_group("gloo")
r = dist.get_rank()
logging.basicConfig(level=logging.INFO, format=f"[rank{r}] %(message)s", force=True)
m = net(1)
W(m)
m = nn.parallel.DistributedDataParallel(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    x, y = batch(s * 2 + r)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    print("rank", r, s, float(loss.detach()).hex(), flush=True)
    logging.info("step %d", s)
print(M(m), os.environ["TORCHELASTIC_MAX_RESTARTS"], os.environ["LOCAL_WORLD_SIZE"], sys.stdout.isatty(), flush=True)
dist.barrier()
if r == 0:
    for f in sorted(glob.glob("tl/*/attempt_0/*/std*.log")):
        lines = [l for l in open(f).read().splitlines() if not l.startswith(("numscope", "[W", "[rank0]:[W", "[rank1]:[W"))]
        open("logs_" + "_".join(f.split("/")[-2:]), "w").write("\n".join(lines))
dist.destroy_process_group()
