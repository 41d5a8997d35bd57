"""Own picklers: persistent_id for weights, reducer_override, a dispatch table, shelve, h5py, npz, legacy torch.save, cloudpickle of a model defined in the script; the bytes."""
# PRELUDE
import copyreg, io, pickle, shelve
import cloudpickle, dill

m = net(6)
m.note = {"by": "script"}
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
print(train(m, opt, 3))
store = {}
kinds = []


class P(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table.copy()

    def persistent_id(self, o):
        if isinstance(o, torch.Tensor):
            k = f"t{len(store)}"
            store[k] = o.detach().clone()
            return k

    def reducer_override(self, o):
        kinds.append(type(o).__name__)
        return NotImplemented


b = io.BytesIO()
P(b, 4).dump(m)
print(H(np.frombuffer(b.getvalue(), np.uint8)), len(b.getvalue()), kinds, len(store))


class U(pickle.Unpickler):
    def persistent_load(self, k):
        return nn.Parameter(store[k])


b.seek(0)
n = U(b).load()
print(n.note, H(n(batch(1)[0])) == H(m(batch(1)[0])))


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = lambda x: x.tanh()

    def forward(self, x):
        return self.act(self.fc(x))


k = Mine()
W(k)
k(torch.ones(2, 4)).sum().backward()
for lib in (cloudpickle, dill):
    s = lib.dumps(k)
    print(lib.__name__, len(s), H(lib.loads(s)(torch.ones(1, 4))))
for protocol in (2, 5):
    torch.save(m, f"m{protocol}.pt", pickle_protocol=protocol)
torch.save({"m": m.state_dict(), "o": opt.state_dict()}, "legacy.pt", _use_new_zipfile_serialization=False)
print(os.path.getsize("legacy.pt"), H(torch.load("legacy.pt")["m"]))
os.remove("legacy.pt")
np.savez("w.npz", **{n: p.detach().numpy() for n, p in m.named_parameters()})
import h5py

with h5py.File("w.h5", "w", track_order=True) as f:
    for name, p in m.state_dict().items():
        f.create_dataset(name, data=p.numpy())
with shelve.open("shelf", "n") as s:
    s["m"] = m
    s["o"] = opt.state_dict()
with shelve.open("shelf") as s:
    print(H(s["m"](batch(2)[0])), len(s["o"]["state"]))
for f in os.listdir("."):
    if f.startswith("shelf"):
        os.remove(f)
print(len(pickle.dumps(opt)), len(pickle.dumps(opt.state_dict())), M(m), R())
