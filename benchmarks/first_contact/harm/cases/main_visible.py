"""What a script sees of itself: __main__, __name__, __file__, __spec__, argv, path, builtins, modules' __main__, warnings' names, flags.

source: pyutils/line_profiler#422, joerick/pyinstrument#109, napari/napari PR 8936
meta: {"args": ["--log-dir", "mine", "--level=x", "-m", "a b", "--", "--json", ""]}
"""
import inspect
import os
import pickle
import runpy
import sys
import traceback
import __main__
import torch
from fcw import mlp, say, seed, train, watch


class Here:
    pass


def facts():
    say(__name__, __main__.__name__, __main__ is sys.modules["__main__"], __main__.__dict__ is globals())
    say(os.path.basename(__file__), os.path.isabs(__file__), __spec__, __package__, __doc__.splitlines()[0][:20], __builtins__ is __import__("builtins"), type(__loader__).__name__)
    say(sys.argv[1:], os.path.basename(sys.argv[0]), [os.path.basename(p) for p in sys.path[:3]], __annotations__ if "__annotations__" in globals() else "no annotations")
    say(pickle.loads(pickle.dumps(Here())).__class__ is Here, Here.__module__, sys.flags.optimize, sys.flags.dev_mode, sys.dont_write_bytecode, sys.executable == os.environ["FC_VENV"] + "/bin/python")
    say(sorted(k for k in globals() if k.startswith("__")), inspect.currentframe().f_back.f_code.co_name, inspect.getsource(Here).strip())
    say(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.displayhook is sys.__displayhook__, sys.excepthook is sys.__excepthook__)
    say(sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), len(sys.meta_path), sys.flags.safe_path, sys.prefix == sys.exec_prefix, hasattr(sys, "ps1"), hasattr(sys, "last_value"))


facts()
seed(90)
model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2))
facts()
