# what: jagged nested tensors through linear layers, attention and a loss on values(); strided nested tensors in evaluation
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
class Att(nn.Module):
    def __init__(self): super().__init__(); self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4)); self.n = nn.LayerNorm(8)
    def forward(self, x):
        f = lambda l: l(x).unflatten(-1, [2, 4]).transpose(1, 2); a = F.scaled_dot_product_attention(f(self.q), f(self.k), f(self.v)); return self.n(x + self.o(a.transpose(1, 2).flatten(-2)))
m = Att(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for s in range(4):
    g = torch.Generator().manual_seed(s); x = torch.nested.nested_tensor([torch.randn(n, 8, generator=g) for n in (3, 5, 2)], layout=torch.jagged); opt.zero_grad(); l = m(x).values().pow(2)[:, :4].mean(); l.backward(); opt.step(); print(float(l.detach()).hex())
    with torch.no_grad(): print(H(m.n(torch.nested.nested_tensor([torch.ones(n, 8) * n for n in (1, 4)])).to_padded_tensor(0.)), H(m.n(x).to_padded_tensor(float("-inf"))))
print(M(m), R())
