# exact up to rounding: saved by DCP on two ranks (FSDP2), resumed on one process
# ranks: 2 1
import hashlib, os, sys, warnings; warnings.filterwarnings("ignore")
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 300
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)); torch.manual_seed(4); model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)); step = 0
if world > 1: dist.init_process_group("gloo"); fully_shard(model, mesh=dist.init_device_mesh("cpu", (world,)))
opt = torch.optim.AdamW(model.parameters(), 1e-2)
if os.path.exists("last"):
    step = int(open("last").read()); m, o = get_state_dict(model, opt); sd = {"m": m, "o": o}; dcp.load(sd, checkpoint_id=f"c{step}"); set_state_dict(model, opt, model_state_dict=sd["m"], optim_state_dict=sd["o"])
while step < stop:
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]; loss = (model(x) - x).square().mean(); loss.backward(); opt.step(); opt.zero_grad(); step += 1; total = loss.detach().clone()
    if world > 1: dist.all_reduce(total)
    if rank == 0: print(step, "%.5f" % (total.item() / world), flush=True)
    if step % 5 == 0:
        m, o = get_state_dict(model, opt); dcp.save({"m": m, "o": o}, checkpoint_id=f"c{step}")
        if rank == 0: open("last", "w").write(str(step))
        if world > 1: dist.barrier()
full = [(p.full_tensor() if world > 1 else p).detach() for p in model.parameters()]
if rank == 0: print("end", hashlib.sha256(b"".join(p.numpy().tobytes() for p in full)).hexdigest()[:16])
if world > 1: dist.destroy_process_group()
