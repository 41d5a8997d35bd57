"""An excepthook that itself raises, and an exception whose __str__ fails: what Python prints, status 1.

Source: https://github.com/Textualize/rich/issues/980
"""
# PRELUDE
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
class Odd(Exception):
    def __str__(self): raise ValueError("no text")
def hook(t, v, tb): print("hook", t.__name__); str(v)
sys.excepthook = hook
raise Odd
