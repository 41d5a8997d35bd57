"""Object collectives in mid-step, all_to_all by p2p, scatter lists, new groups, monitored_barrier, a store of the script's, broadcast of RNG state.

source: pytorch/pytorch#106164, pytorch/pytorch#147064
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import datetime
import pickle
import torch
import torch.distributed as dist
from fcw import grads, leave, mlp, rng, seed, sha, train, watch, weights

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=40))
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
seed(205 + r)
model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2)
alone = dist.new_group([0])
pair = dist.new_group([1, 0], timeout=datetime.timedelta(seconds=30))
for step in range(4):
    loss = model(torch.randn(4, 8)).square().mean()
    gathered = [None, None]
    dist.all_gather_object(gathered, {"rank": r, "step": step, "loss": loss.item().hex()})
    opt.zero_grad()
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    parts = list(flat.chunk(2)) if flat.numel() % 2 == 0 else [flat, flat.clone()]
    back = [torch.empty_like(parts[r]) for _ in range(2)]
    dist.all_gather(back, parts[r].contiguous(), group=pair)
    objects = [{"from": 0, "w": step}] if r == 0 else [None]
    dist.broadcast_object_list(objects, 0)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    if r == 0:
        dist.all_reduce(torch.ones(2), group=alone)
    got = torch.empty(3)
    dist.scatter(got, [torch.full((3,), 1.0), torch.full((3,), 2.0)] if r == 0 else None, 0)
    state = torch.get_rng_state()
    dist.broadcast(state, 0)
    torch.set_rng_state(state)
    opt.step()
    print(gathered, objects, sha(back), got.tolist(), rng(), file=out)
store = dist.distributed_c10d._get_default_store()
store.set(f"mine/{r}", pickle.dumps(sha(weights(model))))
store.wait([f"mine/{1 - r}"])
print(store.get(f"mine/{1 - r}"), dist.get_world_size(), dist.get_process_group_ranks(pair), len(dist.distributed_c10d._world.pg_map), file=out)
out.close()
leave()
