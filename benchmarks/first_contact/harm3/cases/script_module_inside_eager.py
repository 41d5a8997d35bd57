"""A ScriptModule trained inside an eager model, jit.ignore and jit.export, torch.jit.fork and wait, freeze of a part, a scripted function in the loss; graphs without source lines, weights."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")


class In(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)
        self.n = 0

    def forward(self, x):
        self.n += 1
        f = torch.jit.fork(torch.relu, x)
        return self.l(x) + torch.jit.wait(f) + self.py(x)

    @torch.jit.ignore
    def py(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.1

    @torch.jit.export
    def double(self, x):
        return self.l(x) * 2


@torch.jit.script
def loss_fn(y, t):
    d = y - t
    return (d * d).mean()


torch.manual_seed(1)
m = nn.Sequential(nn.Linear(8, 16), torch.jit.script(In()), nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    x, t = batch(s)
    opt.zero_grad()
    l = loss_fn(m(x), t)
    l.backward()
    opt.step()
    print(s, l.item().hex(), m[1].n)
print(H(m[1].double(torch.ones(1, 16))), M(m), len(list(m[1].graph.nodes())))
m[1].train(False)
fz = torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(8, 4)).eval()))
print([n.kind() for n in fz.graph.nodes()])
