# torch.distributed.rpc: a parameter server (rank 0) and two trainers that call it in turn
from fcutil import *
import threading
import torch.distributed.rpc as rpc, torch.multiprocessing as mp
class Server:
    def __init__(self):
        torch.manual_seed(0)
        self.model = MLP(); self.opt = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.lock = threading.Lock(); self.fut = torch.futures.Future(); self.held = {}
        for p in self.model.parameters(): p.grad = torch.zeros_like(p)
    def get(self): return self.model
    @staticmethod
    @rpc.functions.async_execution
    def update(ref, who, grads):
        self = ref.local_value()
        with self.lock:
            self.held[who] = grads; fut = self.fut
            if len(self.held) == 2:
                for w in sorted(self.held):
                    for p, g in zip(self.model.parameters(), self.held[w]): p.grad += g / 2
                self.held = {}
                self.opt.step(); self.opt.zero_grad(set_to_none=False)
                fut.set_result(self.model); self.fut = torch.futures.Future()
        return fut
def trainer(ref):
    me = rpc.get_worker_info().id
    m = ref.rpc_sync().get()
    for step in range(6):
        x, y = data(step, me)
        loss = F.mse_loss(m(x), y); loss.backward()
        m = rpc.rpc_sync(ref.owner(), Server.update, args=(ref, me, [p.grad for p in m.parameters()]))
    say("trainer", me, loss.item(), digest(m.state_dict()))
def run(r, w, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=r, world_size=w)
    os.environ["MASTER_PORT"] = str(port + 1 if port < 65000 else port - 1)
    opts = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=60)
    rpc.init_rpc("ps" if r == 0 else f"t{r}", rank=r, world_size=w, rpc_backend_options=opts)
    if r == 0:
        ref = rpc.RRef(Server())
        torch.futures.wait_all([rpc.rpc_async(f"t{k}", trainer, args=(ref,)) for k in range(1, w)])
        say("server", digest(ref.local_value().model.state_dict(), ref.local_value().opt.state_dict()))
    rpc.shutdown()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.start_processes(run, args=(3, free_port()), nprocs=3, join=True, start_method="fork")
