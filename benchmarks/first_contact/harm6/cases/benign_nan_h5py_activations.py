"""A hook and a forward that append activations to an open HDF5 file (resize, write, flush), with a harmless nan in evaluation; lengths, contents, attributes."""
import h5py
# PRELUDE
file = h5py.File("acts.h5", "w", libver="latest")
ds = file.create_dataset("acts", (0, 4), maxshape=(None, 4), chunks=(4, 4))
small = file.create_dataset("n", data=np.zeros(2, np.int64))


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, log=False):
        y = self.body(x)
        if log:
            y = y.log()
            n = ds.shape[0]
            ds.resize(n + len(y), 0)
            ds[n:] = np.nan_to_num(y.numpy())
            small[0] += 1
            ds.attrs["calls"] = int(ds.attrs.get("calls", 0)) + 1
            file.flush()
        return y


m = Kept()
hooked = []
m.body.register_forward_hook(lambda mod, a, y: hooked.append(ds.shape[0]))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(4):
    print(train(m, opt, 2, 2 * k))
    with torch.no_grad():
        print(int(m(batch(20 + k)[0], True).isnan().sum()), ds.shape, small[:], ds.attrs["calls"])
file.close()
with h5py.File("acts.h5") as f:
    print(f["acts"].shape, H(f["acts"][:]), f["n"][:], dict(f["acts"].attrs), hooked, M(m))
os.remove("acts.h5")
