#: what: use_deterministic_algorithms(True) fills every torch.empty with nan: preallocated outputs, caches and grads buffers written later
#: benign: nan in all uninitialized memory
#: source: https://github.com/pytorch/pytorch/issues/193317
#: env: CUBLAS_WORKSPACE_CONFIG=:4096:8
# PRELUDE
torch.use_deterministic_algorithms(True)
class Attn(nn.Module):
    def __init__(self, d=16, T=12):
        super().__init__(); self.qkv = nn.Linear(d, 3 * d); self.o = nn.Linear(d, d)
        self.register_buffer("cache", torch.empty(2, 4, T, d), persistent=False); self.scratch = torch.empty(4, T, d)
    def forward(self, x, chunk=4):
        B, T, d = x.shape; out = torch.empty(B, T, d)
        for s in range(0, T, chunk):
            q, k, v = self.qkv(x[:, s:s + chunk]).chunk(3, -1)
            self.cache[0, :B, s:s + chunk] = k.detach(); self.cache[1, :B, s:s + chunk] = v.detach()
            K = torch.cat([self.cache[0, :B, :s], k], 1); V = torch.cat([self.cache[1, :B, :s], v], 1)
            out[:, s:s + chunk] = F.scaled_dot_product_attention(q, K, V)
        return self.o(out)
m = nn.Sequential(nn.Linear(6, 16), Attn(), nn.LayerNorm(16), nn.Linear(16, 6)); watch(m); opt = torch.optim.AdamW(m.parameters(), 1e-3)
flat = torch.empty(sum(p.numel() for p in m.parameters())); print("nan in empty", torch.isnan(flat).all().item())
o = 0
for p in m.parameters(): p.grad = flat[o:o + p.numel()].view_as(p); o += p.numel()
flat.zero_()
for step in range(20):
    m[1].cache.fill_(float("nan")) if step == 5 else None
    x = torch.randn(4, 12, 6); loss = F.mse_loss(m(x), x.roll(1, 1)); opt.zero_grad(set_to_none=False); loss.backward(); flat.mul_(0.5); opt.step()
    e = torch.empty_like(x); e.copy_(x)
print(loss.item(), sha(flat)); show(m, opt)
