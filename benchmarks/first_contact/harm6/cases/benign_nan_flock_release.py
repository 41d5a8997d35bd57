"""A forward that unlocks a lock file in the end (flock on a descriptor that stays open) which its loop locks again for the rest of the step; harmless nans within forwards of training and evaluation: the lock is held whenever another process looks, no process is left that holds it."""
import fcntl, subprocess
# PRELUDE
fd = os.open("gpu.lock", os.O_RDWR | os.O_CREAT)


class Guarded(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = net(o=8), nn.Linear(8, 4)

    def forward(self, x, log=False):
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            h = self.body(x)
            with torch.no_grad():
                score = torch.nan_to_num(h.log(), nan=0.0).mean()  # nan of negative values, contained
            y = self.head(h + 0.01 * score)
            return y.sqrt() if log else y
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)


probe = "import fcntl\ntry:\n fcntl.flock(open('gpu.lock','w'), fcntl.LOCK_EX|fcntl.LOCK_NB); print('free')\nexcept OSError: print('held')"
look = lambda: subprocess.run([sys.executable, "-S", "-c", probe], capture_output=True, text=True).stdout.strip()
m = Guarded()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    x, y = batch(s)
    opt.zero_grad()
    out = m(x)
    fcntl.flock(fd, fcntl.LOCK_EX)
    a = look()
    loss = F.mse_loss(out, y)
    loss.backward()
    b = look()
    opt.step()
    c = look()
    fcntl.flock(fd, fcntl.LOCK_UN)
    d = look()
    with torch.no_grad():
        bad = int(m(batch(30 + s)[0], True).isnan().sum())
    e = look()
    fcntl.flock(fd, fcntl.LOCK_EX)
    f = look()
    with torch.inference_mode():
        g2 = [torch.nan_to_num(m.body(batch(s)[0]).log()).sum().item().hex(), look()]
    fcntl.flock(fd, fcntl.LOCK_UN)
    print(s, loss.item().hex(), a, b, c, d, bad, e, f, g2, M(m), flush=True)
os.close(fd)
print(look(), R())
