#: what: nested tensors with jagged layout through linear layers, layer norm and SDPA, trained
#: drop: stderr
#: source: https://github.com/pytorch/tutorials/pull/3075
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
def attn(q, k, v):
    # the CPU has no jagged kernel: one sequence at a time, rewrapped with the same offsets
    outs = [F.scaled_dot_product_attention(a[None].transpose(1, 2), b[None].transpose(1, 2), c[None].transpose(1, 2))[0].transpose(0, 1) for a, b, c in zip(*(t.transpose(1, 2).unbind() for t in (q, k, v)))]
    return torch.nested.nested_tensor_from_jagged(torch.cat(outs), q.transpose(1, 2).offsets()).transpose(1, 2)
class A(nn.Module):
    def __init__(self, d=16): super().__init__(); self.qkv = nn.Linear(d, 3 * d); self.o = nn.Linear(d, d); self.n = nn.LayerNorm(d)
    def forward(self, x): q, k, v = (t.unflatten(-1, [2, 8]).transpose(1, 2) for t in self.qkv(self.n(x)).chunk(3, -1)); return x + self.o(attn(q, k, v).transpose(1, 2).flatten(-2))
m = nn.ModuleList([A(), nn.Linear(16, 3)]); watch(m); opt = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(10):
    x = torch.nested.nested_tensor([torch.randn(random.randint(2, 6), 16) for _ in range(4)], layout=torch.jagged); h = m[0](x); pooled = torch.stack([t.mean(0) for t in h.unbind()]); l = F.cross_entropy(m[1](pooled), torch.randint(3, (4,))); opt.zero_grad(); l.backward(); opt.step(); print(l.item())
show(m, opt)
