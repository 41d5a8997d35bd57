"""Modules that return masks expanded to 4e10 elements of one stored one (stride 0), of which the script uses a slice; a buffer of that kind too: the run ends as fast, with as little memory."""
# PRELUDE
class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.tensor([[0.5]]))
        self.register_buffer("big", torch.zeros(1).expand(2 * 10**5, 2 * 10**5), persistent=False)

    def forward(self, n):
        return self.one.detach().expand(n, n)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask, self.body = Mask(), net(1, 8, 16, 8)

    def forward(self, x):
        big = self.mask(2 * 10**5)
        return self.body(x) * self.mask.one + big[: x.shape[0], :8] + self.mask.big[: x.shape[0], :8]


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    x, _ = batch(s)
    opt.zero_grad()
    m(x).square().mean().backward()
    opt.step()
with torch.no_grad():
    print(H(m(batch(9)[0])), H([p for p in m.parameters()], [p.grad for p in m.parameters()]))
import resource

print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3 * 2**20)
