"""Attention with dropout inside: softmax gradient computed from post-dropout p, without dropout on dp. aws-neuron/nki-samples PR 81."""
from _c import *
class Attn(Function):
    @staticmethod
    def forward(ctx, q, k, v, drop):
        p = (q @ k.transpose(-1, -2) / q.shape[-1] ** .5).softmax(-1); mask = (torch.rand(p.shape) > drop).to(p) / (1 - drop)
        ctx.save_for_backward(q, k, v, p, mask); return (p * mask) @ v
    @staticmethod
    def backward(ctx, g):
        q, k, v, p, mask = ctx.saved_tensors; pd = p * mask; dp = g @ v.transpose(-1, -2)
        ds = pd * (dp - (dp * pd).sum(-1, keepdim=True)) if BAD else p * (dp * mask - (dp * mask * p).sum(-1, keepdim=True))
        ds = ds / q.shape[-1] ** .5
        return ds @ k, ds.transpose(-1, -2) @ q, pd.transpose(-1, -2) @ g, None
class M(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(20, 16); self.qkv = nn.Linear(16, 48); self.o = nn.Linear(16, 20)
    def forward(self, i):
        return self.o(Attn.apply(*self.qkv(self.e(i)).chunk(3, -1), .2))
def seeded(q, k, v): torch.manual_seed(3); return Attn.apply(q, k, v, .3)
truth(seeded, *(torch.randn(2, 4, 3) for _ in range(3)))
m = M(); x = torch.randint(20, (6, 4, 10))
fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 20), x[s].roll(-1, 1).reshape(-1)), lr=.1)
