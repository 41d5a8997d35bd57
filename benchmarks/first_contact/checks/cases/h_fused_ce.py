"""Liger-like fused linear cross entropy: gradient computed in forward, chunked, scaled by grad_output in place in backward. In the model; tiny HF Llama."""
from _c import *
from transformers import LlamaConfig, LlamaModel
class FLCE(Function):
    @staticmethod
    def forward(ctx, h, W, t):
        n = (t != -100).sum(); loss = h.new_zeros(()); dh = torch.empty_like(h); dW = torch.zeros_like(W)
        for i in range(0, len(h), 16):
            z = h[i:i + 16] @ W.t(); tt = t[i:i + 16]; k = tt != -100; lp = z.log_softmax(-1); r = torch.arange(len(tt)); loss += -(lp[r, tt.clamp_min(0)] * k).sum(); d = lp.exp(); d[r, tt.clamp_min(0)] -= 1; d = d * k[:, None] / n
            dh[i:i + 16] = d @ W; dW += d.t() @ h[i:i + 16]
        ctx.save_for_backward(dh.detach(), dW.detach()); return loss / n
    @staticmethod
    def backward(ctx, g):
        dh, dW = ctx.saved_tensors
        if not torch.equal(g, torch.ones_like(g)): dh.mul_(g); dW.mul_(g)
        return dh, dW, None
class LM(nn.Module):
    def __init__(self): super().__init__(); self.b = LlamaModel(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)); self.h = nn.Linear(32, 64, bias=False)
    def forward(self, i): t = F.pad(i[:, 1:], (0, 1), value=-100); return FLCE.apply(self.b(i).last_hidden_state.reshape(-1, 32), self.h.weight, t.reshape(-1))
m = LM(); x = torch.randint(64, (6, 4, 16)); fit(m, lambda s: .5 * m(x[s]), lr=.1)
