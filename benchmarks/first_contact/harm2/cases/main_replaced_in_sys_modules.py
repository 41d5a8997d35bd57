"""The script replaces sys.modules["__main__"] and sys.argv, changes sys.path, deletes modules, and reloads one.

Source: https://github.com/HobbitLong/PyContrast/issues/19
"""
# PRELUDE
import types, importlib
fake = types.ModuleType("__main__"); fake.x = 1
old = sys.modules["__main__"]; m = net(); opt = torch.optim.SGD(m.parameters(), 0.1)
sys.modules["__main__"] = fake; sys.argv = []; sys.path[:] = sys.path[1:]
print(train(m, opt, 3))
for k in ("json", "colorsys", "csv"): sys.modules.pop(k, None)
import json; importlib.reload(json); print(json.dumps([1]), train(m, opt, 2), sys.modules["__main__"] is fake, sys.argv)
sys.modules["__main__"] = old; print(M(m))
del sys.modules["__main__"]; sys.path.clear()
print(train(m, opt, 2))
