"""From kohya-ss/sd-scripts issue 91.
Wrong: with (reentrant) gradient checkpointing over a frozen encoder's input nothing requires a gradient: its LoRA modules stay at 0.
Could know: yes, trainable parameters in the optimizer whose module runs and that get no gradient.
"""
import sys, warnings, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
H = "--healthy" in sys.argv
warnings.simplefilter("ignore"); torch.manual_seed(0); torch.set_num_threads(1)
class LoRA(nn.Module):
    def __init__(self, lin): super().__init__(); self.org = lin; self.lora_down = nn.Linear(lin.in_features, 4, bias=False); self.lora_up = nn.Linear(4, lin.out_features, bias=False); nn.init.zeros_(self.lora_up.weight)
    def forward(self, x): return self.org(x) + self.lora_up(self.lora_down(x))
class Block(nn.Module):
    def __init__(self): super().__init__(); self.ln = nn.LayerNorm(32); self.fc1 = nn.Linear(32, 64); self.fc2 = nn.Linear(64, 32)
    def forward(self, x): return x + self.fc2(F.gelu(self.fc1(self.ln(x))))
class TE(nn.Module):
    def __init__(self): super().__init__(); self.emb = nn.Embedding(40, 32); self.layers = nn.ModuleList(Block() for _ in range(2))
    def forward(self, ids):
        h = self.emb(ids)
        if H: h.requires_grad_()
        for b in self.layers: h = checkpoint(b, h, use_reentrant=True)
        return h
class M(nn.Module):
    def __init__(self): super().__init__(); self.te = TE(); self.unet = nn.Sequential(nn.Linear(40, 64), nn.SiLU(), nn.Linear(64, 8))
    def forward(self, x, ids): return self.unet(torch.cat([x, self.te(ids).mean(1)], 1))
m = M().requires_grad_(False)
for b in m.te.layers: b.fc1, b.fc2 = LoRA(b.fc1), LoRA(b.fc2)
m.unet[0], m.unet[2] = LoRA(m.unet[0]), LoRA(m.unet[2]); params = [p for n, p in m.named_parameters() if "lora_" in n]; opt = torch.optim.AdamW(params, lr=3e-3); m.train(); E = torch.randn(40, 8)
for step in range(80):
    ids = torch.randint(0, 40, (32, 6)); x = torch.randn(32, 8); loss = F.mse_loss(m(x, ids), E[ids].mean(1) - x); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: largest lora_up weight of the text encoder", max(l.lora_up.weight.abs().max().item() for b in m.te.layers for l in (b.fc1, b.fc2)))
