"""FSDP2 built on meta, loaded with set_model_state_dict(broadcast_from_rank0), full state dicts of model and optimizer gathered on rank 0 and saved, explicit prefetching, mixed precision, a second start from the file."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, get_model_state_dict, get_optimizer_state_dict, set_optimizer_state_dict
dist.init_process_group("gloo")
r = dist.get_rank()
def build(sd, osd=None):
    with torch.device("meta"):
        m = net(1)
    for l in m:
        if isinstance(l, nn.Linear):
            fully_shard(l, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    fully_shard(m)
    m[0].set_modules_to_forward_prefetch([m[2]])
    m[4].set_modules_to_backward_prefetch([m[2]])
    m.to_empty(device="cpu")
    set_model_state_dict(m, sd if r == 0 else {}, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    W(m)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    if osd is not None:
        set_optimizer_state_dict(m, opt, osd if r == 0 else {}, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return m, opt
def go(m, opt, a, b):
    for s in range(a, b):
        x, y = batch(s * 2 + r)
        loss = F.mse_loss(m(x).float(), y)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    return float(loss.detach()).hex()
m, opt = build(net(1).state_dict())
a = go(m, opt, 0, 4)
o = StateDictOptions(full_state_dict=True, cpu_offload=True)
sd, osd = get_model_state_dict(m, options=o), get_optimizer_state_dict(m, opt, options=o)
if r == 0:
    torch.save({"m": sd, "o": osd}, "full.pt")
b = go(m, opt, 4, 7)
m2, o2 = build(sd, osd)
c = go(m2, o2, 4, 7)
s1, s2 = get_model_state_dict(m, options=o), get_model_state_dict(m2, options=o)
if r == 0:
    print(a, b, c, H(s1), H(s2), R())
dist.destroy_process_group()
