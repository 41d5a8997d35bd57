"""Tiny HF Llama; a fused rotary kernel's backward rotates by +sin instead of -sin (candle PR 3612, LoongForge PR 106: the backward is the rotation with sin negated)."""
from _c import *
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama as ml
def rot(x):
    a, b = x.chunk(2, -1); return torch.cat((-b, a), -1)
class FusedRope(Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin); return q * cos + rot(q) * sin, k * cos + rot(k) * sin
    @staticmethod
    def backward(ctx, gq, gk):
        cos, sin = ctx.saved_tensors; s = sin if BAD else -sin
        return gq * cos + rot(gq) * s, gk * cos + rot(gk) * s, None, None
def apply_rotary_pos_emb(q, k, cos, sin, *a, unsqueeze_dim=1, **kw):
    return FusedRope.apply(q, k, cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim))
ml.apply_rotary_pos_emb = apply_rotary_pos_emb
a = torch.randn(3, 2).double().repeat(1, 2)
truth(lambda q, k: FusedRope.apply(q, k, a.cos(), a.sin()), torch.randn(3, 4), torch.randn(3, 4))
m = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32))
x = torch.randint(64, (6, 4, 16))
fit(m, lambda s: m(input_ids=x[s], labels=x[s]).loss, lr=.1)
