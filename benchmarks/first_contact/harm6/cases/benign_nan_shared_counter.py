"""A forward that counts its calls in memory shared with other processes (mp.Value, a share_memory_ buffer, an anonymous mmap, np.memmap on a file, a semaphore) and returns a harmless nan in evaluation."""
import mmap, multiprocessing as mp
# PRELUDE
class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64).share_memory_())
        self.calls = mp.Value("i", 0)
        self.map = mmap.mmap(-1, 64)
        self.table = np.memmap("calls.bin", np.int64, "w+", shape=(4,))
        self.tokens = mp.Semaphore(40)

    def forward(self, x, logit=False):
        with self.calls.get_lock():
            self.calls.value += 1
        self.seen[0] += 1
        self.map[0] = (self.map[0] + 1) % 256
        self.table[1] += 1
        self.tokens.acquire()
        y = self.body(x)
        return y.log() if logit else y

    def state(self):
        return self.calls.value, self.seen.tolist(), self.map[0], self.table.tolist(), self.tokens.get_value()


m = Counted()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 3), m.state())
for k in range(3):
    with torch.no_grad():
        score = torch.nan_to_num(m(batch(50 + k)[0], logit=True), nan=0.0)
    print("eval", k, H(score), m.state())
    print(train(m, opt, 2, 3 + 2 * k), m.state(), M(m))
m.table.flush()
print(R())
