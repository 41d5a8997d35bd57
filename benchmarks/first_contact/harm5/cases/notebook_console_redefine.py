"""Cells pushed through code.InteractiveConsole: the model's class defined again, the model made again under the same name, an error in a cell that keeps sys.last_traceback, the next cells train on, displayhook."""
# PRELUDE
import code, gc, weakref
cells = ['''
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 4)
    def forward(self, x):
        return self.l(x)

model = Net()
W(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
train(model, opt, 3)
''', '''
model(torch.zeros(2, 3))
''', '''
sys.last_type.__name__, str(sys.last_value)
''', '''
first = weakref.ref(model)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    def forward(self, x):
        return self.l(x)

model = Net()
W(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
sys.last_traceback = sys.last_value = sys.last_exc = None
n = gc.collect()
first() is None
''', '''
for i in range(3):
    train(model, opt, 1, i)

M(model), _
''', '''
1/0
''', '''
train(model, opt, 2, 10)
''']
ns = dict(globals())
con = code.InteractiveConsole(ns, filename="<cell>")
sys.ps1 = ">>> "
for i, c in enumerate(cells):
    for line in c.strip().split("\n") + ([""] if "\n " in c else []):
        con.push(line)
    con.push("")
print(M(ns["model"]), R())
