"""cloudpickle by value of a watched model whose class lives in __main__ with a lambda in it, sent to a fresh interpreter that trains it; dill with recurse; copyreg; weights as msgpack by srsly, h5py and npz; sizes and hashes printed."""
# PRELUDE
import cloudpickle, dill, io, pickle, subprocess, h5py, srsly
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.act, self.o = nn.Linear(8, 8), (lambda x: torch.tanh(x) * 0.5), nn.Linear(8, 4)
    def forward(self, x):
        return self.o(self.act(self.l(x)))
m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 3))
b = cloudpickle.dumps((m, opt))
c = cloudpickle.dumps(m.forward)
d = dill.dumps(m, recurse=True)
print(len(b), len(c), len(d))
m2, o2 = cloudpickle.loads(b)
m3 = dill.loads(d)
W(m2)
print(train(m2, o2, 2, 5), M(m2), M(m3) == M(m), [p is q for p, q in zip(o2.param_groups[0]["params"], m2.parameters())])
open("m.pkl", "wb").write(b)
code = "import pickle,torch;torch.set_num_threads(1);m,o=pickle.load(open('m.pkl','rb'));l=m(torch.ones(2,8)).square().mean();l.backward();o.step();print(l.item().hex(), len(m._forward_hooks), len(m._forward_pre_hooks), type(m).__module__)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
np.savez("w.npz", **{k: v.numpy() for k, v in m.state_dict().items()})
with h5py.File("w.h5", "w") as f:
    for k, v in m.state_dict().items():
        f[k] = v.numpy()
with h5py.File("w.h5") as f:
    print(H({k: f[k][()] for k in f}))
raw = srsly.msgpack_dumps({k: v.numpy() for k, v in m.state_dict().items()})
print(len(raw), hashlib.sha256(raw).hexdigest()[:12], train(m, opt, 2, 5), M(m) == M(m2), R())
os.remove("w.h5"), os.remove("m.pkl")
