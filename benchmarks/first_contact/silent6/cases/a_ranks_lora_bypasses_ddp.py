"""From kohya-ss/sd-scripts pull 989 (issue 924).
Wrong: the LoRA network is wrapped by DDP, but its modules replace the forward of the base model's layers: DDP's own forward is never called,
and ranks' gradients are not averaged.  Could know: yes, the replicas' weights part.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
class LoRAModule(nn.Module):
    def __init__(self, org): super().__init__(); self.lora_down = nn.Linear(org.in_features, 4, bias=False); self.lora_up = nn.Linear(4, org.out_features, bias=False); nn.init.zeros_(self.lora_up.weight); self.org_forward = org.forward; org.forward = self.forward
    def forward(self, x): return self.org_forward(x) + self.lora_up(self.lora_down(x))
class LoRANetwork(nn.Module):
    def __init__(self, unet): super().__init__(); self.unet_loras = nn.ModuleList(LoRAModule(m) for m in unet if isinstance(m, nn.Linear))
    def forward(self, x): raise NotImplementedError
unet = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8)).requires_grad_(False); network = LoRANetwork(unet); net = DDP(network)
opt = torch.optim.AdamW(net.parameters(), 3e-3); T = torch.randn(8, 8); torch.manual_seed(5 + R)
for step in range(100):
    x = torch.randn(16, 8); loss = F.mse_loss(unet(x), x @ T); opt.zero_grad(); loss.backward()
    if H:
        for p in net.parameters():
            dist.all_reduce(p.grad); p.grad /= W
    opt.step()
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
w = network.unet_loras[0].lora_up.weight.detach(); o = [torch.zeros_like(w) for _ in range(W)]; dist.all_gather(o, w.contiguous())
if R == 0: print("check: ranks' weights differ by", (o[0] - o[1]).abs().max().item(), flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
