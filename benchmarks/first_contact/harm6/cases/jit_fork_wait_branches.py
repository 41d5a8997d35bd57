"""Branches run by torch.jit.fork and torch.jit.wait, in eager, in a scripted submodule inside a watched eager model, and futures with callbacks: values, gradients, order of callbacks."""
# PRELUDE
from typing import List


class Branches(nn.Module):
    def __init__(self, k: int):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(k))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        futures: List[torch.jit.Future[torch.Tensor]] = []
        for p in self.parts:
            futures.append(torch.jit.fork(p, x))
        out = torch.zeros_like(x)
        for f in futures:
            out = out + torch.tanh(torch.jit.wait(f))
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.eager = Branches(3)
        self.scripted = torch.jit.script(Branches(2))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        f = torch.jit.fork(self.eager, x)
        return self.head(self.scripted(x) + torch.jit.wait(f))


import warnings
warnings.simplefilter("ignore")
m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    print(train(m, opt, 2, 2 * s), M(m))
log = []
fut = torch.futures.Future()
then = fut.then(lambda f: (log.append("then"), m(f.value()))[1])
then.add_done_callback(lambda f: log.append(("done", H(f.value()))))
fut.set_result(batch(3)[0])
print(H(then.wait()), log)
bad = torch.futures.Future().then(lambda f: m(f.value()))
fut2 = torch.futures.Future()
b = fut2.then(lambda f: m(torch.ones(2, 3)))
fut2.set_result(None)
try:
    b.wait()
except RuntimeError as e:
    print(str(e).split("\n")[0][:100], "mat1" in str(e))
print(m.scripted.code == torch.jit.script(Branches(2)).code, train(m, opt, 1, 30), M(m))
