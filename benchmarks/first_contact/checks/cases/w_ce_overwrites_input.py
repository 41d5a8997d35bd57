"""Cross entropy stores its gradient into its input behind autograd's back; the softmax before it then has a wrong backward. linkedin/Liger-Kernel PR 1251, issue 272. (The Function's own backward is right: the wrong one is softmax's.)"""
from _c import *
class CE(Function):
    @staticmethod
    def forward(ctx, z, t):
        loss = F.cross_entropy(z, t); d = z.softmax(-1); d[torch.arange(len(t)), t] -= 1; d /= len(t)
        if BAD: z.data.copy_(d); ctx.save_for_backward(z.data)
        else: ctx.save_for_backward(d)
        return loss
    @staticmethod
    def backward(ctx, g): return ctx.saved_tensors[0] * g, None
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(12, 24); self.b = nn.Linear(24, 6)
    def forward(self, x, t): return CE.apply(self.b(self.a(x).tanh()).softmax(-1), t)
m = M(); x = torch.randn(6, 16, 12); y = torch.randint(6, (6, 16))
if TRUTH:
    m(x[0], y[0]).backward(); got = m.b.weight.grad.clone(); m.zero_grad()
    F.cross_entropy(m.b(m.a(x[0]).tanh()).softmax(-1), y[0]).backward(); verdict(got, m.b.weight.grad, "b.weight.grad")
fit(m, lambda s: m(x[s], y[s]), lr=.1)
