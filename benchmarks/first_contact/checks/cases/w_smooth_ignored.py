"""Label smoothing: ignored rows (-100) still get the smoothing part of the gradient (mask not applied). pytorch/pytorch issue 73205; Liger-Kernel PR 198. HF tiny GPT-2 body, the loss in the model."""
from _c import *
from transformers import GPT2Config, GPT2Model
class Smooth(Function):
    @staticmethod
    def forward(ctx, z, t, eps):
        lp = z.log_softmax(-1); keep = t >= 0; ctx.save_for_backward(lp, t, keep); ctx.eps = eps; r = torch.arange(len(t))
        return (((1 - eps) * -lp[r, t.clamp_min(0)] - eps * lp.mean(-1)) * keep).sum() / keep.sum()
    @staticmethod
    def backward(ctx, g):
        lp, t, keep = ctx.saved_tensors; e = ctx.eps; p = lp.exp(); r = torch.arange(len(t))
        d1 = p.clone(); d1[r, t.clamp_min(0)] -= 1; d2 = p - 1 / p.shape[-1]; k = keep[:, None]
        return g * ((1 - e) * d1 * k + e * d2 * (1 if BAD else k)) / keep.sum(), None, None
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.b = GPT2Model(GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=2, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0)); self.h = nn.Linear(24, 40, bias=False)
    def forward(self, i, t): return Smooth.apply(self.h(self.b(i).last_hidden_state).reshape(-1, 40), t.reshape(-1), .1)
truth(lambda z: Smooth.apply(z, torch.tensor([1, -100, 2, -100]), .2), torch.randn(4, 5))
m = LM(); x = torch.randint(40, (6, 4, 12)); t = x.clone(); t[:, :, 7:] = -100
fit(m, lambda s: m(x[s], t[s]), lr=.1)
