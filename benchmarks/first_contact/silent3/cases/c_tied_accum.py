"""Healthy: a small GPT with tied embeddings, accumulation over 4 micro-batches with token-weighted losses, clipping, warm-up and cosine
by hand, a validation every 40 steps, bf16 autocast, no decay on norms."""
import math
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class GPT(nn.Module):
    def __init__(self, v=40, d=32):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(v, d), nn.Embedding(32, d), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
        self.h, self.ln = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(d)
        self.head = nn.Linear(d, v, bias=False)
        self.head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, 0, 0.02)

    def forward(self, ids, labels):
        t = ids.shape[1]
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        x = self.h(self.drop(self.wte(ids) + self.wpe(torch.arange(t))), mask=mask)
        return nn.functional.cross_entropy(self.head(self.ln(x)).flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum")


model = GPT()
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for p in model.parameters() if p.ndim < 2]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95))
nxt = torch.randperm(39) + 1


def data(n=6):
    s = [torch.randint(1, 40, (n,))]
    for _ in range(16):
        s.append(nxt[s[-1] - 1])
    s = torch.stack(s, 1)
    y = s[:, 1:].clone()
    y[torch.arange(16)[None] >= torch.randint(6, 17, (n, 1))] = -100
    return s[:, :-1], y


for step in range(400):
    lr = 3e-3 * min((step + 1) / 40, 0.1 + 0.45 * (1 + math.cos(math.pi * step / 400)))
    for g in opt.param_groups:
        g["lr"] = lr
    micro = [data() for _ in range(2)]
    n = sum((y != -100).sum() for _, y in micro)
    total = 0.0
    for x, y in micro:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x, y) / n
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    if step % 40 == 39:
        model.eval()
        with torch.no_grad():
            x, y = data(16)
            val = model(x, y).item() / (y != -100).sum().item()
        model.train()
print(f"loss {total:.3f} val {val:.3f}")
