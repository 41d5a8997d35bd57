"""__del__ of modules, weakref.finalize of models and tensors, atexit functions: when and in which order they run.

Source: https://github.com/mosaicml/composer/pull/1000
"""
# PRELUDE
import atexit, gc, weakref
log = []
class Net(nn.Module):
    def __init__(self, n): super().__init__(); self.n = n; self.l = nn.Linear(8, 4)
    def forward(self, x): return self.l(x)
    def __del__(self): print("del", self.n)
for n in range(3):
    torch.manual_seed(n); m = Net(n); W(m); weakref.finalize(m, print, "finalize", n)
    print(n, train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
m = None; gc.collect(); print("collected")
keep = Net("kept"); W(keep); train(keep, torch.optim.SGD(keep.parameters(), 0.1), 2)
f = weakref.finalize(keep.l, print, "finalize layer"); f.atexit = True
atexit.register(print, "atexit 1"); atexit.register(lambda: print("atexit 2", train(keep, torch.optim.SGD(keep.parameters(), 0.1), 1)))
print("end", f.alive)
