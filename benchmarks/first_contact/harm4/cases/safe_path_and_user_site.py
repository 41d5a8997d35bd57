"""PYTHONSAFEPATH=1: the script's folder is not on sys.path, so a module beside it is not found; sys.flags, sys.path and what -I implies stay."""
# PRELUDE
print(sys.flags.safe_path, sys.flags.no_user_site, os.getcwd() in sys.path, "" in sys.path)
try:
    import beside
    print("found", beside.X)
except ImportError as e:
    print(e)
sys.path.insert(0, os.getcwd())
import beside

print(beside.X, sys.path.index(os.getcwd()), [os.path.basename(p) for p in sys.path[:3]])
m = beside.build(8)
W(m)
print(train(m, torch.optim.SGD(m.parameters(), 0.05), 4), M(m))
