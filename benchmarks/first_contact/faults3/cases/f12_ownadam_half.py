"""A GPT-like model kept in float16 with an Adam written by hand: the second moment underflows, the epsilon too.
Source: CambioML/pykoi#69, google-deepmind/optax#1754, discuss.pytorch.org/t/adam-half-precision-nans/1765."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)
EPS = 1e-4 if "--cured" in sys.argv else 1e-8


class HalfAdam:
    def __init__(self, params, lr, betas=(0.9, 0.95)):
        self.params, self.lr, self.betas, self.t = list(params), lr, betas, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v in zip(self.params, self.m, self.v):
            if p.grad is None:
                continue
            m.mul_(b1).add_(p.grad, alpha=1 - b1)
            v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            denom = (v / (1 - b2 ** self.t)).sqrt() + EPS
            p.sub_(self.lr / (1 - b1 ** self.t) * m / denom)  # FAULT


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, mask):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab=64, d=32, ctx=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.adapter = nn.Linear(d, d)
        nn.init.zeros_(self.adapter.weight), nn.init.zeros_(self.adapter.bias)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids, adapt):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        mask = torch.triu(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool), 1)
        for b in self.blocks:
            x = b(x, mask)
        if adapt:
            x = x + self.adapter(torch.relu(x - 3.0))
        return self.head(x)


model = GPT().half()
for p in [*model.tok.parameters(), *model.pos.parameters()]:
    p.requires_grad_(False)
opt = HalfAdam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
losses = []
for step in range(14):
    ids = torch.randint(0, 64, (8, 16))
    loss = F.cross_entropy(model(ids, adapt=step >= 6)[:, :-1].float().reshape(-1, 64), ids[:, 1:].reshape(-1))
    for p in model.parameters():
        p.grad = None
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
