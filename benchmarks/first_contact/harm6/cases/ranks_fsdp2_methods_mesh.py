"""FSDP2 on a 1x2 mesh with methods other than forward (register_fsdp_forward_method), unshard by hand with handles, reshard_after_forward as a number, modules prefetched by hand, gradient sync switched off, ignored parameters, one module called outside, state dict of DTensors; bits on each rank."""
# PRELUDE
import warnings
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.relu(self.fc(x))

    def encode(self, x):
        return torch.tanh(self.fc(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.i, self.blocks, self.o = nn.Linear(8, 16), nn.ModuleList(Block() for _ in range(3)), nn.Linear(16, 4)
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x):
        h = self.i(x)
        h = self.blocks[0](h)
        h = self.blocks[1].encode(h)
        return self.o(self.blocks[2](h)) * self.gain[0]


m = Net()
mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
for b in m.blocks:
    fully_shard(b, mesh=mesh, reshard_after_forward=b is not m.blocks[2])
    register_fsdp_forward_method(b, "encode")
fully_shard(m, mesh=mesh, ignored_params={m.gain})
m.blocks[0].set_modules_to_forward_prefetch([m.blocks[1]])
m.blocks[2].set_modules_to_backward_prefetch([m.blocks[1]])
W(m)
opt = torch.optim.AdamW([p for p in m.parameters()], 1e-2, foreach=False)
local = lambda: H([p.to_local() if hasattr(p, "to_local") else p for p in m.parameters()])
for s in range(5):
    opt.zero_grad()
    if s == 2:
        h = m.blocks[1].unshard(async_op=True)
        h.wait()
        m.blocks[1].reshard()
    for k in range(2):
        m.set_requires_gradient_sync(k == 1)
        x, y = batch(4 * s + 2 * k + r)
        loss = F.mse_loss(m(x), y)
        loss.backward()
    norm = nn.utils.clip_grad_norm_([p for p in m.parameters() if hasattr(p, "to_local")], 1.0)
    dist.all_reduce(m.gain.grad)
    opt.step()
    say(s, loss.item().hex(), norm.full_tensor().item().hex(), local())
with torch.no_grad():
    say(H(m(batch(1)[0])), H(m.blocks[0].encode(torch.ones(2, 16))))
sd = m.state_dict()
say([(k, type(v).__name__, tuple(v.shape)) for k, v in list(sd.items())[:3]], H({k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in sd.items()}), R())
dist.barrier()
dist.destroy_process_group()
