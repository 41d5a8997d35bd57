"""From huggingface/nanoVLM pull 204 (also huggingface/trl issue 784).
Wrong: two documents are packed in a row; position ids are reset, but attention reaches from the second into the first.
Could know: no (a causal mask is what most models want).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
V = 24
class LM(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(V, 32); self.p = nn.Embedding(32, 32); self.qkv = nn.Linear(32, 96); self.o = nn.Linear(32, 32); self.n1 = nn.LayerNorm(32); self.n2 = nn.LayerNorm(32); self.m = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)); self.h = nn.Linear(32, V)
    def forward(self, ids, pos, doc):
        x = self.e(ids) + self.p(pos); n = ids.shape[1]; mask = torch.ones(n, n, dtype=torch.bool).tril()[None]
        if H: mask = mask & (doc[:, :, None] == doc[:, None, :])
        q, k, v = self.qkv(self.n1(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4); a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]); x = x + self.o(a.transpose(1, 2).flatten(2)); return self.h(x + self.m(self.n2(x)))
def pack(n=32):
    s = torch.randint(1, V, (n, 2, 1)); d = torch.randint(1, 4, (n, 2, 1)); ids = (s + d * torch.arange(8)) % V; return ids.reshape(n, 16), torch.arange(8).repeat(2).expand(n, -1), torch.arange(2).repeat_interleave(8).expand(n, -1)
m = LM(); opt = torch.optim.AdamW(m.parameters(), lr=3e-3)
for step in range(120):
    ids, pos, doc = pack(); lo = m(ids, pos, doc)[:, :-1]; keep = doc[:, 1:] == doc[:, :-1]; loss = F.cross_entropy(lo[keep], ids[:, 1:][keep]); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): ids, pos, doc = pack(8); b = ids.clone(); b[:, :8] = 1; print("check: second document's logits change with the first by", (m(ids, pos, doc) - m(b, pos, doc))[:, 8:].abs().max().item())
