"""Weights that live in a file (torch.from_file, shared): training writes the file; the file's bytes are the result. Another tensor maps a read-only buffer."""
# PRELUDE
import mmap, warnings

n = 8 * 16 + 16 + 16 * 4 + 4
t = torch.from_file("weights.bin", shared=True, size=n, dtype=torch.float32)
t.copy_(torch.randn(n) * 0.1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        at = 0
        for p in self.parameters():
            p.data = t[at:at + p.numel()].view_as(p)
            at += p.numel()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.register_buffer("scale", torch.frombuffer(b"\0\0\x80?" * 4, dtype=torch.float32))

    def forward(self, x):
        return self.b(self.a(x).tanh()) * self.scale


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
for s in range(5):
    print(train(m, opt, 1, s), H(torch.from_numpy(np.fromfile("weights.bin", dtype=np.float32))))
print(m.a.weight.data_ptr() == t.data_ptr(), H(t) == H(torch.cat([p.detach().reshape(-1) for p in m.parameters()])))
with open("weights.bin", "r+b") as f, mmap.mmap(f.fileno(), 0) as mm:
    mm[:4] = b"\0\0\0?"
print(m.a.weight[0, 0].item(), train(m, opt, 2, 5), M(m), R())
