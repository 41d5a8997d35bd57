"""A local module with the model's class is edited and reloaded in the middle of the run; the old object goes on beside the new one, and takes the new class."""
# PRELUDE
import importlib

text = '''
import torch
from torch import nn
VERSION = {v}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 4)
    def forward(self, x):
        return self.b({f}(self.a(x)))
'''
sys.dont_write_bytecode = True
sys.path.insert(0, os.getcwd())
open("mymodel.py", "w").write(text.format(v=1, f="torch.tanh"))
import mymodel

torch.manual_seed(0)
m = mymodel.Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(mymodel.VERSION, train(m, opt, 3))
open("mymodel.py", "w").write("# a comment more\n" + text.format(v=2, f="torch.sigmoid") + "\n")
importlib.invalidate_caches()
old = type(m)
importlib.reload(mymodel)
print(mymodel.VERSION, type(m) is mymodel.Net, train(m, opt, 2, 3))
m.__class__ = mymodel.Net
print(isinstance(m, mymodel.Net), isinstance(m, old), train(m, opt, 2, 5))
n = mymodel.Net()
n.load_state_dict(m.state_dict())
W(n)
print(train(n, torch.optim.SGD(n.parameters(), 0.05), 2), M(n), M(m))
del sys.modules["mymodel"]
import mymodel as again

print(again is mymodel, train(m, opt, 1, 7), M(m), R())
