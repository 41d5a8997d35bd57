# what: flex_attention in eager mode with a score_mod and a block mask (scores of -inf), its result trained on
# benign: yes
# cmp: status stdout files left
# PRELUDE
from torch.nn.attention.flex_attention import flex_attention, create_block_mask
class Att(nn.Module):
    def __init__(self): super().__init__(); self.qkv = nn.Linear(16, 48); self.o = nn.Linear(16, 4); self.bias = nn.Parameter(torch.zeros(2))
    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        bm = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)
        a = flex_attention(q.detach(), k.detach(), v.detach(), score_mod=lambda sc, b, h, i, j: torch.where(i - j < 5, sc + .1 * h, -float("inf")), block_mask=bm)
        return self.o(a.transpose(1, 2).reshape(2, 16, 16))
m = Att(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(3):
    g = torch.Generator().manual_seed(s); x = torch.randn(2, 16, 16, generator=g); opt.zero_grad(); l = m(x).pow(2).mean(); l.backward(); opt.step(); print(float(l.detach()).hex())
print(M(m), R())
