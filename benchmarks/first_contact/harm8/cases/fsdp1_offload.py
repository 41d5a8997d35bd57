# what: 2 ranks FSDP1 (FullyShardedDataParallel, use_orig_params) on CPU, clip_grad_norm_, full state dict saved; else the error's type
# ranks: 2
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType, FullStateDictConfig
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
dist.init_process_group("gloo"); r = dist.get_rank(); out = []
for orig in (True, False):
    try:
        torch.manual_seed(0); model = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"), use_orig_params=orig); W(model); opt = torch.optim.Adam(model.parameters(), lr=.01)
        for s in range(4): x, y = batch(10 * s + r); opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); n = model.clip_grad_norm_(1.); opt.step(); out.append((float(l.detach()).hex(), n.item().hex()))
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)): sd = model.state_dict()
        if r == 0: torch.save(sd, f"full{orig}.pt")
    except Exception as e: out.append((type(e).__name__, str(e)[:80]))
open(f"rank{r}.txt", "w").write(f"{out} {R()}"); dist.barrier(); dist.destroy_process_group()
