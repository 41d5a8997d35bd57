"""torch.autograd.gradcheck and gradgradcheck of a double model, fast and slow, forward mode and batched gradients; a wrong Function makes gradcheck fail with its text."""
# PRELUDE
from torch.autograd import gradcheck, gradgradcheck

m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Softplus()).double()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    opt.zero_grad()
    m(torch.ones(2, 3, dtype=torch.double) * s).sum().backward()
    opt.step()
x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
print(gradcheck(m, (x,)), gradcheck(m, (x,), fast_mode=True, check_forward_ad=True), gradcheck(m, (x,), check_batched_grad=True))
print(gradgradcheck(m, (x,)), gradgradcheck(m, (x,), check_fwd_over_rev=True, fast_mode=True))


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 2


class WrongNet(nn.Module):
    def forward(self, x):
        return Wrong.apply(x)


w = WrongNet()
W(w)
try:
    gradcheck(w, (x,))
except Exception as e:
    print(type(e).__name__, str(e).splitlines()[0], H(str(e)))


class Random(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5) * 2


try:
    gradcheck(Random(), (x,))
except Exception as e:
    print(type(e).__name__)
p = [q for q in m.parameters()]
print(gradcheck(lambda *a: torch.func.functional_call(m, dict(zip([n for n, _ in m.named_parameters()], a)), (x.detach(),)), tuple(q.detach().requires_grad_() for q in p)))
print(M(m), H(x.grad if x.grad is not None else 0), R())
