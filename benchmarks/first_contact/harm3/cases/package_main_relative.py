"""python -m pkg with a package's __main__.py and relative imports, sub-packages, importlib.resources, a pickle of a class of the package."""
# PRELUDE
import pickle
from importlib import resources

from .sub import K
from . import sub


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(1)

    def forward(self, x):
        return self.body(x) * K


print(__name__, __package__, __spec__.name, os.path.relpath(__file__), os.path.relpath(sys.argv[0]), sys.argv[1:], sys.path[0] == os.getcwd(), sub.__name__)
print(resources.files("pkg.sub").joinpath("data.txt").read_text())
m = Net()
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m), Net.__module__)
c = pickle.loads(pickle.dumps(m))
print(M(c), type(c) is Net)
