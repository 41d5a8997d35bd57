#: what: attention over padding: fully masked rows are nan after softmax, replaced by nan_to_num before the value product; detach()ed maps logged
#: benign: nan rows of softmax, contained by indexing
#: source: https://github.com/pytorch/pytorch/issues/41508
# PRELUDE
class A(nn.Module):
    def __init__(self, d=16): super().__init__(); self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3)); self.maps = None
    def forward(self, x, pad):
        keep = ~pad; m = keep[:, :, None] & keep[:, None, :]
        s = (self.q(x) @ self.k(x).transpose(1, 2)) / 4
        full = torch.softmax(s.detach().masked_fill(~m, float("-inf")), -1); self.maps = full       # nan rows, logged
        w = torch.zeros_like(s); live = m.any(-1)
        w[live] = torch.softmax(s[live].masked_fill(~m[live], float("-inf")), -1)
        return x + w @ self.v(x)
m = nn.ModuleList([A(), A(), nn.Linear(16, 3)]); watch(m); opt = torch.optim.NAdam(m.parameters(), 1e-3); seen = 0
for step in range(20):
    x = torch.randn(6, 9, 16); L = torch.randint(0, 10, (6,)); pad = torch.arange(9)[None] >= L[:, None]
    h = m[1](m[0](x, pad), pad); logit = m[2](h)
    tgt = torch.randint(3, (6, 9)).masked_fill(pad, -100)
    loss = F.cross_entropy(logit.transpose(1, 2), tgt); opt.zero_grad(); loss.backward(); opt.step(); seen += int(torch.isnan(m[0].maps).sum())
print(loss.item(), "nan", seen); show(m, opt)
