"""Two gloo ranks that meet at a file (file://, FileStore), started by mp.spawn; the script counts keys in a store of its own on a HashStore with one rank; what files are left."""
# PRELUDE
import torch.distributed as dist
import torch.multiprocessing as tmp


def rank(r, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=r, world_size=2)
    m = nn.parallel.DistributedDataParallel(net(1))
    W(m)
    loss = train(m, torch.optim.SGD(m.parameters(), 0.05), 4, 20 * r)
    t = torch.tensor([float(r)])
    dist.all_reduce(t)
    out = [None, None]
    dist.all_gather_object(out, (loss, M(m), t.item()))
    if r == 0:
        print(out, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    tmp.spawn(rank, (os.path.abspath("meet"),), nprocs=2)
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    m = nn.parallel.DistributedDataParallel(net(2))
    W(m)
    print(train(m, torch.optim.SGD(m.parameters(), 0.05), 3), M(m))
    store.set("mine", "1")
    print(store.get("mine"), store.add("count", 2))
    dist.destroy_process_group()
    print(sorted(f for f in os.listdir(".") if f != "meet"))
    if os.path.exists("meet"):
        os.remove("meet")
