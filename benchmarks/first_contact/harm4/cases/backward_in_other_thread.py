"""Forward in the main thread, backward in another; graphs handed over by a queue; step in a third thread."""
# PRELUDE
import queue, threading

m = net(2)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
to_backward, to_step, done = queue.Queue(), queue.Queue(), queue.Queue()


def backwards():
    while (loss := to_backward.get()) is not None:
        loss.backward()
        to_step.put(float(loss.detach()).hex())
    to_step.put(None)


def steps():
    while (l := to_step.get()) is not None:
        opt.step()
        opt.zero_grad()
        done.put(l)


ts = [threading.Thread(target=f) for f in (backwards, steps)]
for t in ts:
    t.start()
for s in range(8):
    x, y = batch(s)
    to_backward.put(F.mse_loss(m(x), y))
    print(s, done.get(timeout=30), M(m))
to_backward.put(None)
for t in ts:
    t.join()
print(R())
