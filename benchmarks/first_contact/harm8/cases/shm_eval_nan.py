# what: evaluation batches in shared memory, harmless nan in the forward or in a metric outside; closed (unmapped) right after the call; a skipped nan batch too
# benign: yes
# PRELUDE
from multiprocessing import shared_memory
class Net(nn.Module):
    def __init__(self): super().__init__(); self.f = net()
    def forward(self, x): h = self.f(x); return h if self.training else h / (x - x).sum()
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
def shared(x): s = shared_memory.SharedMemory(create=True, size=1 << 21); a = np.ndarray(x.shape, np.float32, s.buf); a[:] = x.numpy(); return s, torch.from_numpy(a)
for s in range(4):
    print(train(m, opt, 2, 2 * s)); m.eval()
    with torch.no_grad():
        h, x = shared(batch(40)[0]); o = m(x); n = o.isfinite().sum().item(); c = torch.corrcoef((x * 0).T).isnan().sum().item(); del x; h.close(); h.unlink(); print(n, c)
        h, x = shared(batch(41)[0]); z = (x - x) / (x - x); w = z.isnan().sum().item(); del x, z; h.close(); h.unlink(); print(w)
    m.train(); h, x = shared(batch(42)[0] * float("nan")); opt.zero_grad(); l = m(x).mean()
    if l.isnan(): print("skip"); opt.zero_grad()
    del x, l; h.close(); h.unlink()
print(M(m), R())
