"""Higher-order operators in a compiled model: torch.cond on data, while_loop, scan-like map, associative operations, a compiled part within an eager model; both branches; bits."""
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.a(x).sin(), lambda x: self.b(x).cos(), (x,))
        return self.o(y)


torch.manual_seed(1)
m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
c = torch.compile(m, backend="aot_eager", fullgraph=True)
for s in range(4):
    x, t = batch(s)
    opt.zero_grad()
    l = F.mse_loss(c(x * (1 if s % 2 else -1)), t)
    l.backward()
    opt.step()
    print(s, l.item().hex(), bool(x.sum() > 0), [None if p.grad is None else bool(p.grad.any()) for p in m.parameters()])
from torch._higher_order_ops.while_loop import while_loop

with torch.no_grad():
    f = torch.compile(lambda x: while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, m.a(v) * 0.5), (torch.tensor(0), x)), backend="eager")
    print(H(f(batch(5)[0])))
print(M(m))
