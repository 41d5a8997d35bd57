"""Inputs that a model consumes: a generator, a file, a deque, zip, a BatchEncoding-like UserDict with lazy conversion; nan in evaluation with each."""
# PRELUDE
import collections, io
seed(38)
log = []


class Enc(collections.UserDict):
    def __getitem__(self, k):
        log.append(k)
        return super().__getitem__(k)

    def __getattr__(self, k):
        if k == "data":
            raise AttributeError
        log.append("attr " + k)
        try:
            return self.data[k]
        except KeyError:
            raise AttributeError(k)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 5)
        self.c = nn.GRUCell(5, 5)

    def forward(self, stream):
        h = torch.zeros(1, 5)
        if isinstance(stream, io.TextIOBase):
            stream = (torch.tensor([float(v) for v in line.split()]) for line in stream)
        if isinstance(stream, Enc):
            stream = iter(stream["x"])
        while True:
            try:
                x = stream.popleft() if isinstance(stream, collections.deque) else next(stream)
            except (StopIteration, IndexError):
                return h.sum()
            x = x[0] if isinstance(x, tuple) else x
            h = self.c(self.l(x)[None].relu(), h)


def gen(n, bad=False):
    for i in range(n):
        log.append(i)
        yield torch.full((3,), math.nan) if bad and i == 1 else torch.randn(3)


net = Net()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
with open("data.txt", "w") as f:
    for i in range(40):
        f.write(" ".join(str(v) for v in ([math.inf] * 3 if i == 25 else torch.randn(3).tolist())) + "\n")
file = open("data.txt")
for step in range(10):
    total = net(gen(4)) + net(zip(gen(2), gen(2))) + net(collections.deque(gen(3))) + net(Enc(x=list(gen(2))))
    opt.zero_grad(); total.backward(); opt.step()
    with torch.no_grad():
        e = net(gen(4, bad=step % 3 == 1))
        d = collections.deque(gen(4, bad=step % 3 == 2))
        e2 = net(d)
        g = gen(5)
        next(g)
        e3 = net(g)
        part = io.StringIO("".join(file.readline() for _ in range(4)))
        e4 = net(part)
    print(step, dig(total, e, e2, e3, e4), len(log), len(d), file.tell() if False else "")
print(dig(log))
end(net, opt)
