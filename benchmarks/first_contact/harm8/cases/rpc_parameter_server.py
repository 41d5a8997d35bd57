# what: 2 ranks torch.distributed.rpc: remote layer, dist_autograd contexts, DistributedOptimizer
# ranks: 2
# PRELUDE
import torch.distributed.rpc as rpc, torch.distributed.autograd as da
from torch.distributed.optim import DistributedOptimizer
class Server(nn.Module):
    def __init__(self): super().__init__(); torch.manual_seed(3); self.f = nn.Sequential(nn.Linear(16, 16), nn.Tanh()); W(self); self.calls = 0
    def forward(self, x): self.calls += 1; return self.f(x)
    def refs(self): return [rpc.RRef(p) for p in self.parameters()]
    def digest(self): return H(dict(self.state_dict())), self.calls
r = int(os.environ["RANK"])
opts = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=30, _transports=["uv"])
rpc.init_rpc(f"w{r}", rank=r, world_size=2, rpc_backend_options=opts)
if r == 0:
    torch.manual_seed(1); a, b = nn.Linear(8, 16), nn.Linear(16, 4); W(a); W(b); s_ = rpc.remote("w1", Server); refs = s_.rpc_sync().refs() + [rpc.RRef(p) for m in (a, b) for p in m.parameters()]
    opt = DistributedOptimizer(torch.optim.SGD, refs, lr=.1)
    for s in range(5):
        x, y = batch(s)
        with da.context() as c:
            l = F.mse_loss(b(s_.rpc_sync().forward(a(x))), y); da.backward(c, [l]); g = da.get_gradients(c); opt.step(c); print(float(l.detach()).hex(), H(g[a.weight], g[b.bias]))
    print(H(dict(a.state_dict()), dict(b.state_dict())), s_.rpc_sync().digest(), R())
rpc.shutdown()
