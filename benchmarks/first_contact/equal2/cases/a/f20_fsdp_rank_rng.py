# epfml/llm-baselines#13: one file of random states, written by rank 0, read by every rank (FSDP2, dropout, 2 ranks)
# ranks: 2
import hashlib, os, sys, warnings; warnings.filterwarnings("ignore")
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 300
dist.init_process_group("gloo"); rank = dist.get_rank(); mesh = dist.init_device_mesh("cpu", (2,))
torch.manual_seed(20); model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 8)); fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), 1e-2); step = 0; torch.manual_seed(100 + rank)
if os.path.exists("last"):
    name = open("last").read(); step = int(name); m, o = get_state_dict(model, opt); sd = {"m": m, "o": o}; dcp.load(sd, checkpoint_id="c" + name); set_state_dict(model, opt, model_state_dict=sd["m"], optim_state_dict=sd["o"])
    torch.set_rng_state(torch.load(f"c{name}/rng{0 if fault else rank}.pt"))
while step < stop:
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(step))[rank]; loss = (model(x) - x).square().mean(); loss.backward(); opt.step(); opt.zero_grad(); step += 1
    total = loss.detach().clone(); dist.all_reduce(total)
    if rank == 0: print(step, repr(total.item()), flush=True)
    if step % 5 == 0:
        m, o = get_state_dict(model, opt); dcp.save({"m": m, "o": o}, checkpoint_id=f"c{step}"); torch.save(torch.get_rng_state(), f"c{step}/rng{rank}.pt"); dist.barrier()
        if rank == 0: open("last", "w").write(str(step))
        dist.barrier()
full = [p.full_tensor().detach() for p in model.parameters()]
if rank == 0: print("end", hashlib.sha256(b"".join(p.numpy().tobytes() for p in full)).hexdigest()[:16])
dist.destroy_process_group()
