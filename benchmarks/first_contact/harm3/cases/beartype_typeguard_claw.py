"""beartype's and typeguard's decorators and import hooks (beartype.claw on a package made here) on forwards with tensor types: errors' types, hooks in sys.path_hooks, training."""
# PRELUDE
import sys

os.makedirs("typed_pkg")
open("typed_pkg/__init__.py", "w").write("import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self, h: int):\n        super().__init__()\n        self.l = nn.Linear(8, h)\n    def forward(self, x: torch.Tensor, k: float = 1.0) -> torch.Tensor:\n        return self.l(x) * k\n")
sys.path.insert(0, os.getcwd())
from beartype import beartype
from beartype.claw import beartype_package
from typeguard import TypeCheckError, typechecked

beartype_package("typed_pkg")
import typed_pkg


class B(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = typed_pkg.Net(4)

    @beartype
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.n(x, 0.5)


class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    @typechecked
    def forward(self, x: torch.Tensor, names: "list[str] | None" = None) -> torch.Tensor:
        return self.l(x)


m = nn.Sequential(B(), T())
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(m, opt, 4), M(m))
for f in (lambda: m[0](3), lambda: m[0].n(batch(0)[0], "k"), lambda: typed_pkg.Net("h"), lambda: m[1](torch.ones(1, 4), names=[1])):
    try:
        f()
    except Exception as e:
        print(type(e).__name__, str(e).split("\n")[0][:70] if not isinstance(e, TypeCheckError) else "")
print(train(m, opt, 2), R())
