"""The whole training happens while a module of the script is imported (module level, import locks held), with a thread that imports other modules at the same time and a circular import; a second module is imported lazily by a forward."""
# PRELUDE
open("lazy_part.py", "w").write('''
import torch
calls = 0
def scale(x):
    global calls
    calls += 1
    return x * 0.5
''')
open("trains.py", "w").write('''
import threading, importlib, sys
import __main__ as top
torch, nn = top.torch, top.nn
names = ["wave", "colorsys", "chunk", "sndhdr", "this_is_none", "tabnanny", "lazy_part"]
done = []
def imports():
    for n in names:
        try:
            importlib.import_module(n)
            done.append(n)
        except ImportError as e:
            done.append(type(e).__name__)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = top.net()
    def forward(self, x):
        import lazy_part
        return lazy_part.scale(self.body(x))
m = Net()
top.W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
t = threading.Thread(target=imports)
t.start()
loss = top.train(m, opt, 6)
t.join()
import uses_trains
print("in the module", loss, done, getattr(sys.modules["trains"].__spec__, "_initializing", None))
''')
open("uses_trains.py", "w").write("import trains\nseen = sorted(k for k in vars(trains) if not k.startswith('_'))\n")
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, os.getcwd())
before = set(sys.modules)
import trains, uses_trains, lazy_part
print(trains.loss, uses_trains.seen, lazy_part.calls, train(trains.m, trains.opt, 3, 6), M(trains.m), R())
for n in ("trains.py", "uses_trains.py", "lazy_part.py"):
    os.remove(n)
