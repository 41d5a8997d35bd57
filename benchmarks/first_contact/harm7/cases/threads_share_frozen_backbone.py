"""Four threads that evaluate heads over one frozen backbone (inference_mode and no_grad side by side) while the main thread trains, with harmless inf in log(0) and thread-local grad modes, must keep results, modes and counts."""
# PRELUDE
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

back = net(1).requires_grad_(False)
heads = nn.ModuleList(nn.Linear(4, 3) for _ in range(4))
m = nn.ModuleDict({"back": back, "heads": heads})
W(m)
calls = [0] * 4
lock = threading.Lock()


def job(k, s):
    x, _ = batch(100 * k + s)
    mode = torch.inference_mode() if k % 2 else torch.no_grad()
    with mode:
        f = m["back"](x)
        p = torch.softmax(m["heads"][k](f) * 200, 1)
        logp = torch.log(p)  # -inf where p underflows
        ent = -(p * logp).nansum(1)
        kl = torch.where(p > 0, p * logp, torch.zeros(()))
        inside = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    with lock:
        calls[k] += 1
    return k, s, H(ent), H(kl), int(logp.isinf().sum()), inside, (torch.is_grad_enabled(), torch.is_inference_mode_enabled()), f.is_inference()


opt = torch.optim.SGD(heads.parameters(), 0.1)
with ThreadPoolExecutor(4) as pool:
    for s in range(5):
        fs = [pool.submit(job, k, s) for k in range(4)]
        res = [f.result() for f in fs]
        x, _ = batch(s)
        f = back(x)
        loss = sum(F.cross_entropy(h(f), torch.arange(6) % 3) for h in heads)
        opt.zero_grad()
        loss.backward()
        opt.step()
        for r in res:
            print(*r)
        print(s, float(loss.detach()).hex(), M(m), calls, torch.is_grad_enabled())
q = queue.Queue()


def producer():
    for s in range(4):
        x, y = batch(s)
        q.put((x.log(), y))  # nan for negative inputs
    q.put(None)


t = threading.Thread(target=producer)
t.start()
while (item := q.get()) is not None:
    x, y = item
    with torch.no_grad():
        e = back(x)
    print(e.isnan().any(1).tolist(), H(back(x.nan_to_num(0.0))))
t.join()
print(R(), M(m))
