"""PYTHONOPTIMIZE=2: no asserts, no docstrings; with PYTHONSAFEPATH the folder of the script is not on the path."""
# PRELUDE
import tracemalloc, gc
seed(35)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(10):
    loss = net(torch.randn(8, 6)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(torch.full((1, 6), math.nan)) if step == 4 else net(torch.zeros(1, 6))
    with open("log.txt", "a") as f:
        f.write(dig(loss, e) + "\n")
print(tracemalloc.is_tracing(), sys.flags.dev_mode, sys.flags.optimize, sys.flags.safe_path)
end(net, opt)
gc.collect()
print(dig.__doc__, __doc__, os.getcwd() in sys.path, os.path.dirname(os.path.abspath(__file__)) in sys.path, "" in sys.path)
open("helper9.py", "w").write("x = 1\n")
try:
    import helper9
    print("imported")
except ImportError as e:
    print(e)
assert False
print("end")
