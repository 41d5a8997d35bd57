"""distribute_module with partition, input and output functions, DTensors made and redistributed in the loop, local_map, implicit replication, gradients as partial sums, CommDebugMode's counts of collectives for forward, backward and step."""
# PRELUDE
import warnings
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication, local_map

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
calls = []


def part(name, mod, mesh):
    if isinstance(mod, nn.Linear):
        dim = 0 if name.endswith("0") else 1
        for k, p in list(mod.named_parameters()):
            mod.register_parameter(k, nn.Parameter(distribute_tensor(p, mesh, [Shard(dim) if p.dim() > 1 or dim == 0 else Replicate()])))


def enter(mod, args, mesh):
    calls.append("in")
    return DTensor.from_local(args[0], mesh, [Replicate()], run_check=False)


def leave(mod, out, mesh):
    calls.append("out")
    return out.redistribute(placements=[Replicate()]).to_local()


torch.manual_seed(4)
m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
m = distribute_module(m, mesh, part, enter, leave)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
local = lambda: H([p.to_local() for p in m.parameters()], [p.grad.to_local() for p in m.parameters()])
norm = local_map(lambda w: w.square().sum(0), out_placements=[Replicate()], in_placements=([Replicate()],), device_mesh=mesh, redistribute_inputs=True)
for s in range(5):
    x, y = batch(s)
    opt.zero_grad()
    comm = CommDebugMode()
    with comm:
        loss = F.mse_loss(m(x), y)
        loss.backward()
    counts = {str(k): v for k, v in sorted(comm.get_comm_counts().items(), key=str)}
    with implicit_replication():
        pen = (m[0].weight * torch.ones(8)).sum()
    opt.step()
    say(s, loss.item().hex(), local(), counts, comm.get_total_counts(), H(pen.full_tensor()), H(norm(m[0].weight.detach()).to_local()), len(calls))
d = distribute_tensor(torch.arange(12.0).view(6, 2), mesh, [Shard(0)])
say(d.redistribute(placements=[Shard(1)]).to_local().tolist(), (d @ d.t()).full_tensor().sum().item(), R())
dist.barrier()
dist.destroy_process_group()
