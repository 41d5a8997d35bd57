# what: argparse's usage text, doctests of the script itself, inspect.getsource, typing hints, -- arguments, a status text by sys.exit
# run: PY case.py --lr 0.1 -- x --help
# PRELUDE
import argparse, doctest, inspect, typing
class Net(nn.Module):
    """
    >>> float(Net()(torch.ones(1, 8)).sum()) > -1e9
    True
    """
    width: "int" = 3
    def __init__(self): super().__init__(); self.f = net()
    def forward(self, x: torch.Tensor) -> "torch.Tensor": return self.f(x)
p = argparse.ArgumentParser(); p.add_argument("--lr", type=float); p.add_argument("rest", nargs="*"); a = p.parse_args(); print(a, p.prog); p.print_help()
print(doctest.testmod(), len(inspect.getsource(Net)), typing.get_type_hints(Net.forward), Net.__module__, inspect.getmodule(Net).__name__, os.path.basename(inspect.getfile(Net)), sys.modules["__main__"].__dict__ is globals(), sorted(k for k in globals() if k.startswith("__")), __spec__, type(__loader__).__name__)
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=a.lr); print(train(m, opt, 3), M(m), R())
try: p.parse_args(["--what"])
except SystemExit as e: print(e.code)
sys.exit("ended with a text")
