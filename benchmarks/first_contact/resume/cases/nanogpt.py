# nanoGPT's train.py in small: get_batch from np.random/torch.randint, lr by iter_num, ckpt with model_args, iter_num
import hashlib, math, os, sys, torch
from torch import nn
F = sys.argv[sys.argv.index("--fault") + 1] if "--fault" in sys.argv else ""
until = int(sys.argv[sys.argv.index("--until") + 1]) if "--until" in sys.argv else 80
torch.manual_seed(1337)
data = torch.randint(0, 40, (4000,), generator=torch.Generator().manual_seed(1)).cumsum(0) % 40
class GPT(nn.Module):
    def __init__(self):
        super().__init__(); self.wte = nn.Embedding(40, 16); self.wpe = nn.Embedding(16, 16)
        self.h = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True); self.lm_head = nn.Linear(16, 40, bias=False); self.lm_head.weight = self.wte.weight
    def forward(self, i):
        return self.lm_head(self.h(self.wte(i) + self.wpe(torch.arange(16)), src_mask=torch.full((16, 16), -1e9).triu(1)))
def lr_of(i): return 1e-2 * (i + 1) / 20 if i < 20 else 1e-3 + 0.5 * (1 + math.cos(math.pi * (i - 20) / 180)) * 9e-3
model = GPT(); nd = [p for p in model.parameters() if p.dim() < 2]; d = [p for p in model.parameters() if p.dim() > 1]
opt = torch.optim.AdamW([{"params": d, "weight_decay": 0.1}, {"params": nd, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.99))
it = 0
exact = F in ("", "iter_reset", "ema_rng")
if os.path.exists("ckpt.pt"):
    c = torch.load("ckpt.pt"); sd = c["model"]
    for k in list(sd):
        if k.startswith("_orig_mod."): sd[k[10:]] = sd.pop(k)
    model.load_state_dict(sd); opt.load_state_dict(c["optimizer"]); it = c["iter_num"] if F != "iter_reset" else 0
    if exact: torch.set_rng_state(c["rng"])                     # nanoGPT itself does not: fault "as_published"
while it < until:
    for g in opt.param_groups: g["lr"] = lr_of(it)
    ix = torch.randint(4000 - 17, (8,))
    x = torch.stack([data[i:i + 16] for i in ix]); y = torch.stack([data[i + 1:i + 17] for i in ix])
    loss = nn.functional.cross_entropy(model(x).view(-1, 40), y.view(-1)); loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step(); opt.zero_grad(set_to_none=True); it += 1
    if it % 10 == 0: torch.save({"model": model.state_dict(), "optimizer": opt.state_dict(), "iter_num": it, "rng": torch.get_rng_state()}, "ckpt.pt")
print("end", it, loss.item(), hashlib.sha256(b"".join(v.detach().numpy().tobytes() for v in model.state_dict().values())).hexdigest()[:10])
