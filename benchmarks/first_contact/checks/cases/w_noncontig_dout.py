"""The backward reads a non-contiguous grad_output as if it were contiguous. Dao-AILab/flash-attention issue 355; FBGEMM PR 3006; mmcv PR 737."""
from _c import *
class Attn(Function):
    @staticmethod
    def forward(ctx, q, k, v):
        p = (q @ k.transpose(-1, -2) / q.shape[-1] ** .5).softmax(-1); ctx.save_for_backward(q, k, v, p); return p @ v
    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        if BAD and not g.is_contiguous() and g.untyped_storage().nbytes() >= g.numel() * g.element_size():
            st = [1]
            for n in reversed(g.shape[1:]): st.insert(0, st[0] * n)
            g = g.as_strided(g.shape, st)                         # the kernel assumes these strides
        dp = g @ v.transpose(-1, -2); ds = p * (dp - (dp * p).sum(-1, keepdim=True)) / q.shape[-1] ** .5
        return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g
class MHA(nn.Module):
    def __init__(self): super().__init__(); self.qkv = nn.Linear(16, 48); self.o = nn.Linear(16, 16)
    def forward(self, x):
        B, T, C = x.shape; q, k, v = self.qkv(x).view(B, T, 3, 4, 4).permute(2, 0, 3, 1, 4)
        return self.o(Attn.apply(q, k, v).transpose(1, 2).reshape(B, T, C))
truth(lambda q, k, v: Attn.apply(q, k, v).transpose(1, 2).contiguous(), *(torch.randn(2, 2, 3, 4) for _ in range(3)))
m = nn.Sequential(nn.Embedding(20, 16), MHA(), nn.Linear(16, 20)); x = torch.randint(20, (6, 4, 8))
fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 20), x[s].roll(-1, 1).reshape(-1)), lr=.1)
