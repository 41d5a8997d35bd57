"""A zipapp (model module and __main__ inside a .pyz), run as a file."""
# the part that makes the archive needs no torch
import sys
import zipfile

MODEL = '''
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x):
        return self.b(self.a(x).tanh())
'''
MAIN = '''
import hashlib, pkgutil, sys
import torch
from inside.model import Net
torch.manual_seed(int(sys.argv[2]))
torch.set_num_threads(1)
print(__name__, __file__.rsplit("/", 1)[-1], type(__loader__).__name__, __package__ == "", sys.argv[0], sys.argv[1:], sys.path[0].rsplit("/", 1)[-1])
print(pkgutil.get_data("inside", "data.txt"))
m = Net()
o = torch.optim.SGD(m.parameters(), 0.1)
for s in range(4):
    o.zero_grad(); l = m(torch.randn(3, 4)).square().sum(); l.backward(); o.step()
print(l.item().hex(), hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in m.parameters())).hexdigest()[:16])
print(__spec__ and __spec__.name, type(sys.modules["__main__"]).__name__, Net.__module__)
'''
if __name__ == "__main__" and sys.argv[1:] == ["make"]:
    z = zipfile.ZipFile("app.pyz", "w")
    for n, t in (("inside/__init__.py", ""), ("inside/model.py", MODEL), ("inside/data.txt", "resource"), ("__main__.py", MAIN)):
        z.writestr(zipfile.ZipInfo(n, (2024, 1, 1, 0, 0, 0)), t)
    z.close()
