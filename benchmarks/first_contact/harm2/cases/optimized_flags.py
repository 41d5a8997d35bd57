"""PYTHONOPTIMIZE=2 (no asserts, no docstrings), PYTHONSAFEPATH: flags, __debug__, path and results.

Source: invented
"""
# PRELUDE
print(__debug__, __doc__, sys.flags.optimize, sys.flags.safe_path, os.getcwd() in sys.path, sys.flags.no_user_site)
m = net(); print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 4), M(m))
assert False
