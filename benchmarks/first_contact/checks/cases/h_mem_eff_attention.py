"""Memory-efficient attention: online softmax over blocks, backward recomputes from the saved lse (flash), causal."""
from _c import *
class Flash(Function):
    @staticmethod
    def forward(ctx, q, k, v, blk):
        sc = q.shape[-1] ** -.5; T = q.shape[-2]; o = torch.zeros_like(q); m = torch.full(q.shape[:-1], -math.inf, dtype=q.dtype); l = torch.zeros_like(m)
        for j in range(0, T, blk):
            s = (q @ k[..., j:j + blk, :].transpose(-1, -2)) * sc; s = s.masked_fill(torch.arange(T)[:, None] < torch.arange(j, min(j + blk, T)), -math.inf)
            mn = torch.maximum(m, s.amax(-1)); safe = torch.where(mn == -math.inf, torch.zeros_like(mn), mn); p = (s - safe[..., None]).exp(); a = torch.where(m == -math.inf, torch.zeros_like(m), (m - safe).exp())
            l = l * a + p.sum(-1); o = o * a[..., None] + p @ v[..., j:j + blk, :]; m = mn
        o = o / l[..., None]; ctx.save_for_backward(q, k, v, o, m + l.log()); ctx.blk = blk; return o
    @staticmethod
    def backward(ctx, g):
        q, k, v, o, lse = ctx.saved_tensors; sc = q.shape[-1] ** -.5; T = q.shape[-2]; d = (g * o).sum(-1, keepdim=True); dq = torch.zeros_like(q); dk = []; dv = []
        for j in range(0, T, ctx.blk):
            kk, vv = k[..., j:j + ctx.blk, :], v[..., j:j + ctx.blk, :]; s = (q @ kk.transpose(-1, -2)) * sc; p = (s - lse[..., None]).exp().masked_fill(torch.arange(T)[:, None] < torch.arange(j, j + kk.shape[-2]), 0)
            dv.append(p.transpose(-1, -2) @ g); ds = p * (g @ vv.transpose(-1, -2) - d) * sc; dq = dq + ds @ kk; dk.append(ds.transpose(-1, -2) @ q)
        return dq, torch.cat(dk, -2), torch.cat(dv, -2), None
class A(nn.Module):
    def __init__(self, d, h): super().__init__(); self.h = h; self.qkv = nn.Linear(d, 3 * d); self.o = nn.Linear(d, d)
    def forward(self, x): B, T, C = x.shape; q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4); return x + self.o(Flash.apply(q, k, v, 4).transpose(1, 2).reshape(B, T, C))
m = nn.Sequential(nn.Embedding(20, 16), A(16, 4), A(16, 4), nn.Linear(16, 20)); x = torch.randint(20, (6, 4, 11)); fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 20), x[s].roll(1, 1).reshape(-1)), lr=.1)
