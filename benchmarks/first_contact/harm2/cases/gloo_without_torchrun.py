"""A process group of one rank by file:// and of two by mp.spawn with tcp on a free port, destroyed and made anew.

Source: https://github.com/pytorch/examples (imagenet, mp.spawn)
"""
# PRELUDE
import torch.distributed as dist, torch.multiprocessing as mp
def work(r):
    torch.set_num_threads(1); dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store2", rank=r, world_size=2); m = net(0); d = nn.parallel.DistributedDataParallel(m); a = train(d, torch.optim.SGD(d.parameters(), 0.1), 3, 10 * r); open(f"s{r}.txt", "w").write(a + M(m)); dist.destroy_process_group()
if __name__ == "__main__":
    for k in range(2):
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store{k}", rank=0, world_size=1); m = net(k); d = nn.parallel.DistributedDataParallel(m); print(train(d, torch.optim.SGD(d.parameters(), 0.1), 3), M(m)); dist.destroy_process_group(); print(os.path.exists(f"store{k}"))
    mp.spawn(work, nprocs=2); print(sorted(f for f in os.listdir(".") if f.startswith("s"))); [os.remove(f) for f in os.listdir(".") if f.startswith("store")]
