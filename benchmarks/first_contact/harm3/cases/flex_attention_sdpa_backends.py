"""flex_attention (uncompiled) with score_mod, a document mask and GQA, scaled_dot_product_attention under each sdpa_kernel with boolean and additive masks, one row fully masked (its nan replaced by 0 by the script)."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

doc = torch.tensor([0] * 5 + [1] * 7 + [2] * 4)


class Att(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.q, self.kv, self.o = how, nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.bias = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, 2, 8).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 1, 16).transpose(1, 2).chunk(2, -1)
        if self.how == "flex":
            bm = create_block_mask(lambda b, h, i, j: (doc[i] == doc[j]) & (i >= j), None, None, n, n, device="cpu")
            with torch.no_grad():
                y = flex_attention(q.detach(), k.detach(), v.detach(), score_mod=lambda s, b, h, i, j: s - 0.1 * (i - j), block_mask=bm, enable_gqa=True)
            y = y + F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            m = (doc[:, None] == doc[None]).clone()
            m[3] = False
            if self.how == "add":
                m = torch.zeros(n, n).masked_fill(~m, -float("inf"))
            with sdpa_kernel([SDPBackend.MATH]):
                y = F.scaled_dot_product_attention(q, k.expand(b, 2, n, 8), v.expand(b, 2, n, 8), attn_mask=m)
            y = torch.cat([y[:, :, :3], torch.zeros_like(y[:, :, 3:4]), y[:, :, 4:]], 2)
        return self.o(y.transpose(1, 2).reshape(b, n, 16))


for how in ("flex", "bool", "add"):
    torch.manual_seed(1)
    m = Att(how)
    if how != "add":
        W(m)
    opt = torch.optim.SGD([p for n, p in m.named_parameters() if n != "bias"], 0.05)
    for s in range(3):
        x = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(s))
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        ok = all(p.grad is None or p.grad.isfinite().all() for p in m.parameters())
        opt.step()
    print(how, loss.item().hex(), ok, M(m))
