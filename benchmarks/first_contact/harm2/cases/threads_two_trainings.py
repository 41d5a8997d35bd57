"""Two threads, each with its model, optimizer and generator; grad mode is per thread; exceptions of one do not reach the other.

Source: https://github.com/python/cpython/issues/78195
"""
# PRELUDE
import threading
res = {}
def work(k):
    m = net(k); W(m)
    if k == 2:
        torch.set_grad_enabled(False)
        try:
            raise ValueError("mine")
        except ValueError as e:
            res["e"] = repr(e)
    else:
        opt = torch.optim.Adam(m.parameters(), 1e-2)
        r = [train(m, opt, 2, 2 * i) for i in range(4)]
        res[k] = (r, M(m), torch.is_grad_enabled())
lock = threading.Lock(); o = net
def net(seed=0, i=8, h=16, o=4):
    with lock:
        g = torch.Generator().manual_seed(seed); m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        for p in m.parameters(): p.data.normal_(0, 0.1, generator=g)
        return m
ts = [threading.Thread(target=work, args=(k,)) for k in range(3)]
[t.start() for t in ts]; [t.join() for t in ts]
for k in sorted(res, key=str): print(k, res[k])
print(torch.is_grad_enabled(), threading.active_count())
