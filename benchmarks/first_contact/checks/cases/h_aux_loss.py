"""DeepSeek-MoE's AddAuxiliaryLoss: forward gives x, backward gives the auxiliary loss a gradient of 1. deepseek-ai/DeepSeek-MoE issue 17: meant so."""
from _c import *
class AddAuxiliaryLoss(Function):
    @staticmethod
    def forward(ctx, x, loss): assert loss.numel() == 1; ctx.dtype = loss.dtype; ctx.req = loss.requires_grad; return x
    @staticmethod
    def backward(ctx, g): return g, (torch.ones(1, dtype=ctx.dtype).reshape(()) if ctx.req else None)
class MoE(nn.Module):
    def __init__(self, d=12, e=4): super().__init__(); self.r = nn.Linear(d, e); self.w = nn.Parameter(torch.randn(e, d, d) * .2)
    def forward(self, x): p = self.r(x).softmax(-1); w, i = p.topk(2, -1); y = (torch.einsum("bd,bkde->bke", x, self.w[i]) * w[..., None]).sum(1); load = torch.zeros(4).scatter_add_(0, i.reshape(-1), torch.ones(i.numel())) / i.numel(); return AddAuxiliaryLoss.apply(y, .01 * 4 * (load * p.mean(0)).sum())
m = nn.Sequential(nn.Linear(6, 12), MoE(), MoE(), nn.Linear(12, 3)); x = torch.randn(6, 16, 6); y = torch.randint(3, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
