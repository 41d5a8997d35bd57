#: what: T5's relative position buckets: log(0) = -inf cast to long inside forward, chosen away by where; a learned bias on top
#: benign: -inf in a position computation
#: source: https://github.com/pytorch/text/pull/1830
# PRELUDE
class Bias(nn.Module):
    def __init__(self, nb=8, heads=2): super().__init__(); self.nb = nb; self.emb = nn.Embedding(nb, heads)
    def forward(self, q, k):
        rel = torch.arange(k)[None] - torch.arange(q)[:, None]; n = -torch.min(rel, torch.zeros_like(rel)); ex = self.nb // 2
        big = ex + (torch.log(n.float() / ex) / np.log(32 / ex) * (self.nb - ex)).to(torch.long); big = torch.min(big, torch.full_like(big, self.nb - 1))
        return self.emb(torch.where(n < ex, n, big)).permute(2, 0, 1)[None]
class L(nn.Module):
    def __init__(self): super().__init__(); self.qkv = nn.Linear(16, 48); self.bias = Bias(); self.o = nn.Linear(16, 16)
    def forward(self, x):
        B, T, _ = x.shape; q, k, v = self.qkv(x).view(B, T, 3, 2, 8).permute(2, 0, 3, 1, 4); b = self.bias(T, T) + torch.full((T, T), float("-inf")).triu(1)
        return x + self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=b.expand(B, -1, -1, -1)).transpose(1, 2).reshape(B, T, 16))
m = nn.Sequential(L(), L(), nn.Linear(16, 5)); watch(m); opt = torch.optim.Adafactor(m.parameters(), 1e-2)
for s in range(15): x = torch.randn(4, 20, 16); l = F.cross_entropy(m(x).flatten(0, 1), torch.randint(5, (80,))); opt.zero_grad(); l.backward(); opt.step(); print(l.item())
show(m, opt)
