"""One model whose forward runs its submodules in the threads of a pool (parallel experts), grad mode set in the threads, an expert that raises, thread-local values; futures gathered in order; backward on the main thread; copies of a module evaluated in threads while the main one trains."""
import copy, threading
from concurrent.futures import ThreadPoolExecutor
# PRELUDE
pool = ThreadPoolExecutor(3)
lock = threading.Lock()
who = {}


class Expert(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, self.body = k, net(k, 8, 12, 4)
        self.fail = False

    def forward(self, x):
        with lock:
            who.setdefault(self.k, 0)
            who[self.k] += 1
        if self.fail:
            raise LookupError(f"expert {self.k} is down")
        return self.body(x)


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts, self.gate = nn.ModuleList(Expert(k) for k in range(4)), nn.Linear(8, 4)

    def forward(self, x):
        grad = torch.is_grad_enabled()

        def run(e):
            with torch.set_grad_enabled(grad):
                return e(x)

        fs = [pool.submit(run, e) for e in self.experts]
        g = torch.softmax(self.gate(x), -1)
        outs = []
        for e, f in zip(self.experts, fs):
            try:
                outs.append(f.result())
            except LookupError as err:
                outs.append(torch.zeros(len(x), 4))
                who["error"] = str(err)
        return (torch.stack(outs, 1) * g[..., None]).sum(1)


m = Parallel()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(8):
    m.experts[2].fail = s in (3, 4)
    loss = train(m, opt, 1, s)
    with torch.no_grad():
        y = m(batch(50 + s)[0])
    print(s, loss, M(m), H(y), y.requires_grad, sorted(who.items(), key=str))
twin = copy.deepcopy(m.experts[0])
W(twin)
stop = threading.Event()
done = []


def evaluate():
    k = 0
    while not stop.is_set() or k < 5:
        with torch.inference_mode():
            done.append(H(twin(batch(k % 5)[0])))
        k += 1


t = threading.Thread(target=evaluate)
t.start()
loss = train(m, opt, 6, 20)
stop.set()
t.join()
print(loss, M(m), sorted(set(done)), R())
pool.shutdown()
