"""RoPE backward g*cos - rotate_half(g)*sin instead of g*cos - rotate_half(g*sin): wrong where the halves of sin differ. PaddlePaddle/Paddle PR 74716."""
from _c import *
def rot(x):
    a, b = x.chunk(2, -1); return torch.cat((-b, a), -1)
class Rope(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin); return x * cos + rot(x) * sin
    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        return (g * cos - rot(g) * sin if BAD else g * cos - rot(g * sin)), None, None
T, D = 10, 16
f = torch.outer(torch.arange(T).float(), 1 / 100 ** (torch.arange(0, D, 1) / D))
cos, sin = f.cos(), f.sin()                      # interleaved layout given to a half-split kernel: the halves differ
class Attn(nn.Module):
    def __init__(self):
        super().__init__(); self.q = nn.Linear(D, D); self.k = nn.Linear(D, D); self.v = nn.Linear(D, D)
        self.register_buffer("cos", cos); self.register_buffer("sin", sin)
    def forward(self, x):
        q = Rope.apply(self.q(x), self.cos, self.sin); k = Rope.apply(self.k(x), self.cos, self.sin)
        return F.scaled_dot_product_attention(q, k, self.v(x), is_causal=True)
truth(lambda x: Rope.apply(x, cos.double(), sin.double()), torch.randn(T, D))
m = nn.Sequential(nn.Embedding(30, D), Attn(), nn.Linear(D, 30)); x = torch.randint(30, (6, 4, T))
fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 30), x[s].roll(-1, 1).reshape(-1)), lr=.1)
