# DDP with torch.save on rank 0, or FSDP2 with torch.distributed.checkpoint; goes on from the newest
import argparse, hashlib, os, random
import torch, torch.distributed as dist
from torch import nn
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict, get_model_state_dict, set_model_state_dict
ap = argparse.ArgumentParser(); ap.add_argument("which"); ap.add_argument("--fault", default=""); ap.add_argument("--until", type=int, default=40); ap.add_argument("--p", type=float, default=0.1)
a = ap.parse_args(); F = a.fault
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1 or a.which == "dcp":
    if world == 1: os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29655", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(a.p), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
if a.which == "dcp":
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (world,))
    for m in net:
        if isinstance(m, nn.Linear): fully_shard(m, mesh=mesh)
    fully_shard(net, mesh=mesh); model = net
else:
    model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
draw = torch.Generator().manual_seed(1); X = torch.randn(320, 16, generator=draw); Y = X[:, :4].argmax(1)
data = torch.utils.data.TensorDataset(X, Y)
if F == "sampler_2":
    sampler = torch.utils.data.DistributedSampler(data, world, rank, shuffle=True)
else:
    sampler = None
torch.manual_seed(100 + rank)                                  # each rank its own dropout
step = 0
class S:
    def state_dict(self): return {"step": step}
    def load_state_dict(self, d): global step; step = d["step"]
rngf = f"rng{rank if F != 'rank0_rng' else 0}.pt"
if a.which == "dcp" and os.path.exists("ck/latest"):
    p = "ck/" + open("ck/latest").read()
    if F == "raw_optimizer":                                   # KempnerForge 115: no moments to fill yet
        sd = {"model": get_model_state_dict(model), "optim": {"state": opt.state_dict()["state"]}, "s": S()}
        dcp.load(sd, checkpoint_id=p); set_model_state_dict(model, sd["model"])
    elif F == "partial":
        m, o = get_state_dict(model, opt)
        o["state"] = {k: v for k, v in o["state"].items() if "bias" not in k}
        dcp.load({"model": m, "optim": o, "s": S()}, checkpoint_id=p)
        m2, o2 = get_state_dict(model, opt)
        set_state_dict(model, opt, model_state_dict=m, optim_state_dict={**o2, "state": {**o2["state"], **o["state"]}})
    else:
        m, o = get_state_dict(model, opt)
        sd = {"model": m, "optim": o, "s": S()}
        dcp.load(sd, checkpoint_id=p)
        set_state_dict(model, opt, model_state_dict=sd["model"], optim_state_dict=sd["optim"])
    if os.path.exists(rngf): torch.set_rng_state(torch.load(rngf))
elif os.path.exists("last.pt"):
    c = torch.load("last.pt"); net.load_state_dict(c["model"]); opt.load_state_dict(c["opt"]); step = c["step"]
    if F == "rank1_no_opt" and rank == 1: opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if F != "no_rng" and os.path.exists(rngf): torch.set_rng_state(torch.load(rngf))
per = 16
def save():
    if a.which == "dcp":
        m, o = get_state_dict(model, opt)
        dcp.save({"model": m, "optim": o, "s": S()}, checkpoint_id=f"ck/{step}")
        if rank == 0: open("ck/latest", "w").write(str(step))
    elif rank == 0:
        torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "step": step}, "last.pt")
    if not (F == "rank0_rng" and rank): torch.save(torch.get_rng_state(), f"rng{rank}.pt")
    if world > 1: dist.barrier()
begin = step
while step < a.until:
    if F == "sampler_2":
        e = step // 10 if not (begin) else (step - begin) // 10  # epoch counted anew after resuming
        sampler.set_epoch(e); idx = list(sampler)[(step % 10) * per // world:(step % 10 + 1) * per // world]
    else:
        perm = torch.randperm(320, generator=torch.Generator().manual_seed(step // 20))
        idx = perm[(step % 20) * per:(step % 20 + 1) * per].chunk(world)[rank]
    x, y = X[idx], Y[idx]
    nn.functional.cross_entropy(model(x), y).backward()
    opt.step(); opt.zero_grad(); step += 1
    if step % 15 == 0: save()
sd = {k: (v.full_tensor() if hasattr(v, "full_tensor") else v) for k, v in net.state_dict().items()}
if rank == 0: print("end", step, hashlib.sha256(b"".join(v.numpy().tobytes() for v in sd.values())).hexdigest()[:10], flush=True)
if dist.is_initialized(): dist.destroy_process_group()
