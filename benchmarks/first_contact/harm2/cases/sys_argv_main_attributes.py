"""What a script sees of itself: argv, __file__, __name__, __spec__, __package__, __builtins__, __doc__, __annotations__, path[0], the order of globals.

Source: https://github.com/pyutils/line_profiler/issues/422
"""
# PRELUDE
import __main__
v: int = 3
print(sys.argv, __file__, __name__, __spec__, __package__, __doc__[:20], type(__builtins__).__name__, __loader__ is not None, __annotations__)
print(os.path.basename(sys.path[0]) == os.path.basename(os.getcwd()), __main__ is sys.modules["__main__"], __main__.v, list(globals())[:8], sys.orig_argv[-1:], __cached__)
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
import inspect
print(H(inspect.getsource(net)), inspect.getfile(net) == __file__ or inspect.getfile(net), inspect.getmodule(net) is __main__, inspect.getsourcelines(train)[1])
print(sys.modules.get("case"), [k for k in sys.modules if k.startswith("__m")])
