# what: attention with fully padded rows: softmax of all -inf is nan, replaced by where / nan_to_num in the forward, in training too
# benign: yes
# PRELUDE
class Att(nn.Module):
    def __init__(self): super().__init__(); self.i = nn.Linear(8, 24); self.o = nn.Linear(8, 4)
    def forward(self, x, pad):
        q, k, v = self.i(x).chunk(3, -1); s = (q @ k.transpose(1, 2) / 8 ** .5).masked_fill(pad[:, None], -float("inf"))
        if self.training: s = torch.where(pad.all(1)[:, None, None], torch.zeros(()), s)
        a = s.softmax(-1); a = a.nan_to_num(0.); b = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=~pad[:, None, None].expand(-1, 1, 5, -1))[:, 0].nan_to_num(0.) if not self.training else 0
        return self.o(a @ v + b)
m = Att(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(6):
    g = torch.Generator().manual_seed(s); x = torch.randn(3, 5, 8, generator=g); pad = torch.arange(5)[None] >= torch.tensor([5, 3, 0])[:, None]; opt.zero_grad(); l = m(x, pad).pow(2).mean(); l.backward(); opt.step(); print(float(l.detach()).hex())
    m.eval()
    with torch.no_grad(): print(H(m(x, pad)))
    m.train()
print(M(m), R())
