# what: spawned actor processes with a shared-memory model and queues; the learner trains; actors return rollouts with nan padding
# benign: yes
# cmp: status stdout files left
# PRELUDE
import torch.multiprocessing as mp
def actor(k, model, qin, qout):
    torch.set_num_threads(1)
    while True:
        s = qin.get()
        if s is None: break
        with torch.no_grad(): o = model(batch(50 + 10 * s + k)[0])
        r = torch.full((2, 6, 4), float("nan")); r[0] = o; qout.put((s, k, r.numpy()))
if __name__ == "__main__":
    ctx = mp.get_context("fork" if len(sys.argv) > 1 else "spawn"); model = net(); model.share_memory(); W(model); qin = [ctx.Queue() for _ in range(2)]; qout = ctx.Queue()
    ps = [ctx.Process(target=actor, args=(k, model, qin[k], qout)) for k in range(2)]; [p.start() for p in ps]; opt = torch.optim.SGD(model.parameters(), lr=.05)
    for s in range(4):
        for q in qin: q.put(s)
        rs = dict((k, r) for _, k, r in (qout.get(timeout=60) for _ in range(2))); x, y = batch(s); t = torch.from_numpy(np.nanmean(np.stack([rs[0], rs[1]]), axis=(0, 1))); opt.zero_grad(); l = F.mse_loss(model(x), y + t); l.backward(); opt.step(); print(float(l.detach()).hex())
    for q in qin: q.put(None)
    for p in ps: p.join()
    print([p.exitcode for p in ps], M(model), R())
