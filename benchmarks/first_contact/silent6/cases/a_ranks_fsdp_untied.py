"""From mosaicml/composer pull 1856 (also huggingface/accelerate pull 3154).
Wrong: the model is built on the meta device and materialized with to_empty(): head and embedding, tied before, become two parameters.
Could know: yes, weights that were tied no longer are (if their tie is seen before), with equal values at the first step.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self): super().__init__(); self.wte = nn.Embedding(32, 32); self.fc = nn.Linear(32, 64); self.proj = nn.Linear(64, 32); self.lm_head = nn.Linear(32, 32, bias=False); self.tie_weights()
    def tie_weights(self): self.lm_head.weight = self.wte.weight
    def forward(self, x): h = self.wte(x); h = h + self.proj(F.gelu(self.fc(h))); return self.lm_head(h)
state = LM().state_dict()
with torch.device("meta"): net = LM()
for m in net.modules(): m.to_empty(device="cpu", recurse=False)
net.load_state_dict(state)
if H: net.tie_weights()
fully_shard(net, mesh=init_device_mesh("cpu", (W,))); opt = torch.optim.AdamW(net.parameters(), 3e-3); torch.manual_seed(4 + R)
for step in range(80):
    x = torch.randint(0, 32, (16, 6)); loss = F.cross_entropy(net(x).flatten(0, 1), ((x + 1) % 32).flatten()); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
if R == 0: print("check: parameters", len(list(net.parameters())), "head is the embedding", net.lm_head.weight is net.wte.weight, flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
