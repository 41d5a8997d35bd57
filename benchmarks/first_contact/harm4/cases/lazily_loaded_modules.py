"""importlib.util.LazyLoader modules: which of them are loaded is seen from outside; nothing but the script's own use loads one."""
# PRELUDE
import importlib.util


def lazy(name):
    spec = importlib.util.find_spec(name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


names = ["colorsys", "mailcap", "wave", "sndhdr"]
mods = {n: lazy(n) for n in names}
state = lambda: {n: object.__getattribute__(mods[n], "__class__").__name__ for n in names}
m = net(9)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
c = torch.compile(m, backend="eager")
print(state(), train(m, opt, 3))
print(train(c, opt, 2, 3), state())
with torch.no_grad():
    print(H(torch.nan_to_num(m(batch(1)[0]).log(), nan=0.0)), state())
print(mods["colorsys"].rgb_to_hsv(1, 0, 0), state(), M(m), R())
