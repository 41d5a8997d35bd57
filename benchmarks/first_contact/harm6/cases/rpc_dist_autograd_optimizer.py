"""Two processes of torch.distributed.rpc, half of the model on each; dist_autograd.backward and DistributedOptimizer in place of loss.backward and step: losses, remote gradients and weights."""
import torch.multiprocessing as mp
# PRELUDE
import torch.distributed.rpc as rpc
import torch.distributed.autograd as dist_autograd
from torch.distributed.optim import DistributedOptimizer


class Half(nn.Module):
    def __init__(self, i, o, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.fc = nn.Linear(i, o)

    def forward(self, x):
        return torch.tanh(self.fc(x))

    def refs(self):
        return [rpc.RRef(p) for p in self.parameters()]

    def digest(self):
        return H([p.detach() for p in self.parameters()])


def remote_forward(rref, x):
    return rref.local_value()(x)


def remote_refs(rref):
    return rref.local_value().refs()


def remote_digest(rref):
    return rref.local_value().digest()


def worker(rank, file):
    torch.set_num_threads(1)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}", num_worker_threads=4, _transports=["uv"]))
    if rank == 0:
        front = Half(8, 16, 1)
        W(front)
        back = rpc.remote("w1", Half, args=(16, 4, 2))
        opt = DistributedOptimizer(torch.optim.SGD, front.refs() + rpc.rpc_sync("w1", remote_refs, args=(back,)), lr=0.05)
        for s in range(5):
            x, y = batch(s)
            with dist_autograd.context() as ctx:
                out = rpc.rpc_sync("w1", remote_forward, args=(back, front(x)))
                loss = F.mse_loss(out, y)
                dist_autograd.backward(ctx, [loss])
                grads = dist_autograd.get_gradients(ctx)
                print(s, loss.item().hex(), len(grads), H(*[grads[p] for p in front.parameters()]))
                opt.step(ctx)
        print(front.digest(), rpc.rpc_sync("w1", remote_digest, args=(back,)), [p.grad for p in front.parameters()], flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(worker, args=(os.path.abspath("rpc"),), nprocs=2)
    if os.path.exists("rpc"):
        os.remove("rpc")
    print("joined", R())
