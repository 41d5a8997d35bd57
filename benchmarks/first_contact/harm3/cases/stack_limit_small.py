"""ulimit -s 1024 (a main thread's stack of 1 MB) and a thread of 512 kB that trains; a graph of 3,000 nodes in a module's forward."""
# PRELUDE
import threading


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x):
        for _ in range(3000):
            x = x * 0.999 + self.w * 1e-4
        return x


m = nn.Sequential(nn.Linear(8, 4), Deep())
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
threading.stack_size(512 * 1024)
out = []
n = net(3)
W(n)


def work():
    out.append(train(n, torch.optim.SGD(n.parameters(), 0.05), 4))


t = threading.Thread(target=work)
t.start()
t.join()
print(out, M(n), M(m), threading.stack_size())
