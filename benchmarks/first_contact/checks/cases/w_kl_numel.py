"""KL divergence: forward is batchmean, backward divides by the number of elements (reduction not respected). linkedin/Liger-Kernel PR 262. Loss is a module called OUTSIDE the model."""
from _c import *
class KL(Function):
    @staticmethod
    def forward(ctx, logp, q):
        ctx.save_for_backward(q); return (q * (q.log() - logp)).sum() / len(q)
    @staticmethod
    def backward(ctx, g):
        q, = ctx.saved_tensors; return -g * q / (q.numel() if BAD else len(q)), None
class KLLoss(nn.Module):
    def forward(self, z, q): return KL.apply(z.log_softmax(-1), q)
truth(lambda z: KL.apply(z.log_softmax(-1), torch.full((3, 4), .25).double()), torch.randn(3, 4))
m = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5)); crit = KLLoss()
x = torch.randn(6, 8, 10); q = torch.randn(6, 8, 5).softmax(-1)
fit(m, lambda s: crit(m(x[s]), q[s]))
