"""Code of PyTorch 0.3's time: Variable, .data, register_backward_hook (not full) and its warning, reduce= and size_average= with their warnings, F.sigmoid, Tensor.new, .type(), volatile tricks, hooks that return gradients; what the old hooks get for modules with one and with several nodes."""
# PRELUDE
from torch.autograd import Variable

log = []


class TwoNodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, z):
        return F.sigmoid(self.a(x)) * F.tanh(self.b(z)), x + z


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.two, self.act, self.out = TwoNodes(), nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x):
        a, b = self.two(x, x * 2)
        return self.out(self.act(a + b))


m = Net()


def hook(name):
    def f(mod, gi, go):
        log.append((name, [None if g is None else tuple(g.shape) for g in gi], [tuple(g.shape) for g in go], H(*[g for g in gi if g is not None]), H(*go)))
        if name == "out":
            return (gi[0] * 0.5, *gi[1:])

    return f


m.out.register_backward_hook(hook("out"))
m.act.register_backward_hook(hook("act"))
m.two.a.register_backward_hook(hook("a"))
W(m)
opt = torch.optim.SGD(m.parameters(), lr=0.05)
crit = nn.MSELoss(size_average=False)
for s in range(4):
    x, y = batch(s)
    x, y = Variable(x, requires_grad=s == 2), Variable(y)
    opt.zero_grad()
    out = m(x)
    loss = crit(out, y) + F.l1_loss(out, y, reduce=True, size_average=True)
    loss.backward(torch.FloatTensor([1.0])[0])
    for p in m.parameters():
        p.data.add_(p.grad.data, alpha=-1e-3)
    opt.step()
    log.append(loss.data.new(2).fill_(1).type("torch.DoubleTensor").sum().item())
    print(s, loss.data.item().hex(), M(m), x.grad is not None)
m.two.register_backward_hook(hook("two"))
try:
    m(Variable(batch(5)[0])).sum().backward()
except Exception as e:
    print(type(e).__name__, str(e)[:120])
for l in log[:12]:
    print(l)
print(len(log), H([str(l) for l in log]), isinstance(m.out.weight, Variable))
