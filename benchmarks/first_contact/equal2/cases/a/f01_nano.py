# optimizer of the checkpoint never loaded, as in NVlabs/stylegan2-ada-pytorch#108, zylo117/Yet-Another-EfficientDet-Pytorch#269; loop of nanoGPT
import hashlib, os, sys
import torch
from torch import nn
from torch.nn import functional as F
fault = "--fault" in sys.argv
max_iters = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
out_dir = "out"; os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
data = torch.randint(0, 32, (2000,))
def get_batch():
    ix = torch.randint(len(data) - 16, (8,))
    return torch.stack([data[i:i + 16] for i in ix]), torch.stack([data[i + 1:i + 17] for i in ix])
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(32, 24); self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(nn.TransformerEncoderLayer(24, 2, 48, 0.1, batch_first=True) for _ in range(2))
        self.head = nn.Linear(24, 32, bias=False); self.head.weight = self.wte.weight
    def forward(self, idx, targets):
        x = self.drop(self.wte(idx))
        for b in self.h: x = b(x, src_mask=nn.Transformer.generate_square_subsequent_mask(idx.shape[1]), is_causal=True)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
model = GPT(); iter_num = 0; best_val_loss = 1e9
optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95))
ckpt_path = os.path.join(out_dir, "ckpt.pt")
if os.path.exists(ckpt_path):
    checkpoint = torch.load(ckpt_path, weights_only=False)
    model.load_state_dict(checkpoint["model"])
    if not fault: optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]; torch.set_rng_state(checkpoint["rng"])
    checkpoint = None
while iter_num < max_iters:
    X, Y = get_batch()
    logits, loss = model(X, Y)
    optimizer.zero_grad(set_to_none=True); loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step()
    iter_num += 1; print(iter_num, repr(loss.item()), flush=True)
    if iter_num % 5 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num, "rng": torch.get_rng_state(), "config": {"lr": 3e-3}}, ckpt_path)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
