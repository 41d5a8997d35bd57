"""code.interact in the middle of a training loop and inside a forward, fed from stdin, with local names; sys.ps1, banner and exit texts on stderr; the training goes on after end-of-input."""
import code
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.ask = False

    def forward(self, x):
        h = self.body(x)
        if self.ask:
            console = code.InteractiveInterpreter({"h": h, "self": self, "x": x, "H": H})
            for line in ("print(H(h), h.requires_grad, type(h.grad_fn).__name__)", "h.nosuch", "h = h * 0", "1 +"):
                print("more:", console.runsource(line))
        return h


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    m.ask = s == 4
    loss = train(m, opt, 1, s)
    print(s, loss)
    if s == 2:
        sys.stdout.flush()
        code.interact(banner="look around", local=dict(globals()), exitmsg="bye")
        print("back", M(m))
print(M(m), R(), hasattr(sys, "ps1"))
