"""RLIMIT_FSIZE: a checkpoint that is larger than files may be raises EFBIG; the script catches it, keeps the last good file and trains on."""
# PRELUDE
import resource, signal

resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
m = nn.Sequential(nn.Linear(8, 400), nn.ReLU(), nn.Linear(400, 40), nn.ReLU(), nn.Linear(40, 4))
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)


def save(name, what):
    try:
        torch.save(what, name + ".tmp")
        os.replace(name + ".tmp", name)
        return "saved"
    except (OSError, RuntimeError) as e:
        if os.path.exists(name + ".tmp"):
            os.remove(name + ".tmp")
        return type(e).__name__


for s in range(4):
    print(s, train(m, opt, 2, 2 * s), save("small.pt", m[0].state_dict()), save("big.pt", {"m": m.state_dict(), "o": opt.state_dict()}))
try:
    with open("log.txt", "wb") as f:
        for i in range(10):
            f.write(b"x" * 9999)
            f.flush()
except OSError as e:
    print(e.errno, os.path.getsize("log.txt"))
print(signal.getsignal(signal.SIGXFSZ), sorted(os.listdir(".")), M(m), R())
