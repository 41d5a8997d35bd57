# FSDP2 with a fault in the forward of rank 1 (the logarithm of zeros in layers.1, step 3), with mixed precision, clipping by the total norm, a full state dict on rank 0 saved at the end
from fcutil import *
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.norm = nn.LayerNorm(16); self.up = nn.Linear(16, 32); self.down = nn.Linear(32, 16)
    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))
        if self is net.layers[1] and step == 3 and r == 1:
            h = h + torch.log(h.abs() * 0) # FAULT
        return x + self.down(h)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(40, 16); self.layers = nn.ModuleList(Block() for _ in range(3)); self.head = nn.Linear(16, 40)
    def forward(self, t):
        h = self.emb(t)
        for l in self.layers: h = l(h)
        return self.head(h)
net = Net(); kw = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
for l in net.layers: fully_shard(l, **kw)
fully_shard(net, **kw)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(6):
    g = torch.Generator().manual_seed(10 * step + r); t = torch.randint(0, 40, (4, 9), generator=g)
    out = net(t[:, :-1]); loss = F.cross_entropy(out.float().flatten(0, 1), t[:, 1:].flatten())
    truth(step, "head", "output", out)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    truth(step, "head", "wgrad", net.head.weight.grad)
    opt.step(); opt.zero_grad()
    say("rank", r, step, loss.item(), norm.full_tensor().item())
full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if r == 0: torch.save(full, "model.pt"); say("full", digest(full))
say("rank", r, digest({k: v for k, v in net.state_dict().items()})); dist.destroy_process_group()
