"""FSDP2 on two ranks, torch.distributed.checkpoint, a random state a rank, samples drawn on each rank. --lose rank-rng | optim | count"""
import glob, hashlib, os, sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END = int(os.environ.get("END", "100"))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 8))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(100 + rank)
n = 0
found = sorted(glob.glob("dcp-*"), key=lambda f: int(f[4:]))
if found:
    m, o = get_state_dict(model, opt)
    held = {"model": m, "n": torch.zeros((), dtype=torch.long), **({} if lose == "optim" else {"optim": o})}
    dcp.load(held, checkpoint_id=found[-1])
    set_state_dict(model, opt, model_state_dict=m, optim_state_dict=o)
    if lose == "optim":
        opt.state.clear()
    n = int(held["n"])
    torch.set_rng_state(torch.load(f"{found[-1]}/rng{0 if lose == 'rank-rng' else rank}.pt"))
while n < END:
    x = torch.randn(4, 8)
    loss = (model(x) - x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    n += 1
    sha = hashlib.sha256(b"".join(p.detach().to_local().numpy().tobytes() for p in model.parameters())).hexdigest()[:10]
    print(f"r{rank} step {n} loss {loss.item():.7f} {sha}", flush=True)
    if n % 5 == 0:
        m, o = get_state_dict(model, opt)
        dcp.save({"model": m, "optim": o, "n": torch.tensor(n)}, checkpoint_id=f"dcp-{n}")
        torch.save(torch.get_rng_state(), f"dcp-{n}/rng{rank}.pt")
        dist.barrier()
