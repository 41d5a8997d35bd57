"""From huggingface/diffusers issue 6087.
Wrong: LoRA weights are saved without their config; when they are loaded to train on, alpha is 1, not 8: the adapters count an eighth.
Could know: no (an attribute of a new object; the weights are the same).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=1):
        super().__init__(); self.base = base.requires_grad_(False); self.lora_A = nn.Linear(base.in_features, r, bias=False); self.lora_B = nn.Linear(r, base.out_features, bias=False); nn.init.zeros_(self.lora_B.weight); self.scaling = alpha / r
    def forward(self, x): return self.base(x) + self.scaling * self.lora_B(self.lora_A(x))
torch.manual_seed(1); base = [nn.Linear(16, 32), nn.Linear(32, 16)]; tgt = torch.randn(16, 16) * .5
def net(alpha): return nn.Sequential(LoRALinear(base[0], alpha=alpha), nn.ReLU(), LoRALinear(base[1], alpha=alpha))
losses = []
def train(m, n):
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=3e-3)
    for i in range(n):
        x = torch.randn(64, 16); loss = F.mse_loss(m(x), x @ tgt); opt.zero_grad(); loss.backward(); opt.step(); losses.append(loss.item())
        if len(losses) % 20 == 1: print(len(losses) - 1, round(loss.item(), 4))
m = net(8); train(m, 100); state = {k: v for k, v in m.state_dict().items() if "lora_" in k}
m2 = net(8 if H else 1); m2.load_state_dict(state, strict=False); train(m2, 60)
print("check: loss before and after the loading", sum(losses[90:100]) / 10, losses[100])
