"""A script that uses the job's store itself: its keys and their number before and after a training, waits, compare_set; barrier with timeout that fails with its text."""
# PRELUDE
import datetime
import torch.distributed as dist

dist.init_process_group("gloo")
r = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
m = nn.parallel.DistributedDataParallel(net(3))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
mine = dist.PrefixStore("mine", dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 7, 2, r == 0, timeout=datetime.timedelta(seconds=30)))
print(r, train(m, opt, 3, 10 * r), flush=True) if r == 0 else train(m, opt, 3, 10 * r)
mine.set(f"k{r}", "v")
mine.wait(["k0", "k1"], datetime.timedelta(seconds=20))
dist.barrier()
a = mine.num_keys()
dist.barrier()
train(m, opt, 5, 10 * r + 3)
dist.barrier()
b = mine.num_keys()
dist.barrier()
if r == 0:
    print(a, b, mine.compare_set("c", "", "one"), store.check(["nobody-set-this"]), flush=True)
    try:
        mine.wait(["never"], datetime.timedelta(milliseconds=300))
    except dist.DistStoreError as e:
        print(type(e).__name__, flush=True)
    print(M(m.module), R(), flush=True)
dist.barrier()
dist.destroy_process_group()
