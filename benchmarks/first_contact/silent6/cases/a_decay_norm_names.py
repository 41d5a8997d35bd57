"""From deepspeedai/DeepSpeedExamples pull 755 (also huggingface/transformers issue 4360).
Wrong: the list of names without decay is ["bias", "LayerNorm.weight"], the model's norms are called ln_1 and input_layernorm: all norm
weights decay.  Could know: yes, norm weights are in the group with decay while a group without decay has biases only.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self, d):
        super().__init__(); self.input_layernorm = nn.LayerNorm(d); self.attn = nn.MultiheadAttention(d, 4, batch_first=True); self.ln_1 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def forward(self, x): h = self.input_layernorm(x); x = x + self.attn(h, h, h, need_weights=False)[0]; return x + self.mlp(self.ln_1(x))
class LM(nn.Module):
    def __init__(self): super().__init__(); self.wte = nn.Embedding(30, 32); self.h = nn.ModuleList(Block(32) for _ in range(2)); self.ln_f = nn.LayerNorm(32); self.head = nn.Linear(32, 30)
    def forward(self, x):
        x = self.wte(x)
        for b in self.h: x = b(x)
        return self.head(self.ln_f(x))
m = LM(); no = ["bias", "layernorm.weight", "ln_1.weight", "ln_f.weight"] if H else ["bias", "LayerNorm.weight"]
groups = [{"params": [p for n, p in m.named_parameters() if not any(k in n for k in no)], "weight_decay": 0.3},
          {"params": [p for n, p in m.named_parameters() if any(k in n for k in no)], "weight_decay": 0.0}]
opt = torch.optim.AdamW(groups, lr=3e-3)
for step in range(120):
    x = torch.randint(0, 30, (32, 12)); loss = F.cross_entropy(m(x).flatten(0, 1), x.flip(1).flatten()); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
ids = {id(p) for p in groups[0]["params"]}
print("check: norm weights that decay", sum(id(x.weight) in ids for x in m.modules() if isinstance(x, nn.LayerNorm)))
