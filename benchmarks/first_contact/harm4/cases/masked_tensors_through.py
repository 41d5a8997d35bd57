"""torch.masked's MaskedTensor and its reductions inside modules, with gradients; errors of operations that it lacks."""
# PRELUDE
import warnings

warnings.filterwarnings("ignore")
from torch.masked import as_masked_tensor, masked_tensor, softmax as masked_softmax, mean as masked_mean


class Pool(nn.Module):
    def forward(self, x, mask):
        mt = as_masked_tensor(x, mask)
        return mt.sum(1).to_tensor(0.0) / mask.sum(1).clamp(min=1)


class Inner(nn.Module):
    def forward(self, mt):
        return mt * 2 + mt.exp()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.pool, self.inner, self.out = nn.Linear(8, 8), Pool(), Inner(), nn.Linear(8, 4)

    def forward(self, x, mask):
        h = self.fc(x)
        a = masked_softmax(h.detach(), -1, mask=mask)
        k = masked_tensor(h.detach().clone(), mask)
        z = self.inner(k)
        with torch.no_grad():
            pooled = self.pool(h * a.to_tensor(0.0) if hasattr(a, "to_tensor") else h * a, mask)
        return self.out(pooled + h.mean(1)), z


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    g = torch.Generator().manual_seed(s)
    x, mask = torch.randn(3, 5, 8, generator=g), torch.rand(3, 5, 8, generator=g) > 0.4
    opt.zero_grad()
    y, z = m(x, mask)
    y.square().mean().backward()
    opt.step()
    print(s, H(y), type(z).__name__, H(z.to_tensor(-1.0)), int(z.get_mask().sum()), H(masked_mean(x, 1, mask=mask)))
try:
    m.inner(masked_tensor(torch.ones(3), torch.ones(3, dtype=torch.bool))).cumsum(0).matmul(torch.ones(3))
except Exception as e:
    print(type(e).__name__)
print(M(m), R())
