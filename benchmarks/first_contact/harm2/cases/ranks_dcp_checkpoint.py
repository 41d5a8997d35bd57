"""torch.distributed.checkpoint saves and loads a sharded model and optimizer; names and sizes of files, weights after resuming.

Source: https://github.com/pytorch/pytorch/pull/110846
"""
# PRELUDE
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo"); r = dist.get_rank(); m = net(0); fully_shard(m, mesh=dist.init_device_mesh("cpu", (2,))); W(m); opt = torch.optim.AdamW(m.parameters(), 1e-2)
def go(n, first):
    for s in range(first, first + n): x, y = batch(10 * r + s); opt.zero_grad(); loss = F.mse_loss(m(x), y); loss.backward(); opt.step()
    return float(loss.detach()).hex()
a = go(3, 0); sd, od = get_state_dict(m, opt); dcp.save({"m": sd, "o": od}, checkpoint_id="ck"); b = go(2, 3); dcp.load({"m": sd, "o": od}, checkpoint_id="ck"); set_state_dict(m, opt, model_state_dict=sd, optim_state_dict=od); c = go(2, 3)
open(f"r{r}.txt", "w").write(str((a, b, c, sorted(os.listdir("ck")), H([p.to_local() for p in m.parameters()])))); dist.barrier()
if r == 0: import shutil; shutil.rmtree("ck")
dist.destroy_process_group()
