"""A forward that makes folders, renames, links, truncates and deletes files (dumps of activations, the last three kept) and gives a harmless nan in evaluation."""
import glob
# PRELUDE
class Dumps(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        os.makedirs("dumps", exist_ok=True)

    def forward(self, x, dump=False):
        y = self.body(x)
        if dump:
            y = y.log()
            n = len(os.listdir("made")) if os.path.isdir("made") else 0
            os.makedirs(f"made/call-{n:03d}")
            np.save("dumps/new.npy", np.full(3, n))
            os.rename("dumps/new.npy", f"dumps/act-{n:03d}.npy")
            if os.path.lexists("dumps/last"):
                os.unlink("dumps/last")
            os.symlink(f"act-{n:03d}.npy", "dumps/last")
            for old in sorted(glob.glob("dumps/act-*.npy"))[:-3]:
                os.remove(old)
            with open("count.txt", "a") as f:
                f.write(f"{n}\n")
            os.truncate("count.txt", max(0, os.path.getsize("count.txt") - (1 if n % 2 else 0)))
            os.chmod("count.txt", 0o600 + n)
        return y


m = Dumps()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3))
for k in range(6):
    with torch.no_grad():
        y = m(batch(90 + k)[0], True)
    print(k, int(y.isnan().sum()), sorted(os.listdir("made")), sorted(os.listdir("dumps")), os.readlink("dumps/last"), oct(os.stat("count.txt").st_mode), os.path.getsize("count.txt"))
    print(train(m, opt, 1, 3 + k))
print(open("count.txt").read().split("\n"), M(m))
