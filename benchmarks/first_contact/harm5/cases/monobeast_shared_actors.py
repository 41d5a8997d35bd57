"""IMPALA by torchbeast: buffers in shared memory, actor processes (fork) that read a shared model without gradients, index queues, a learner thread with a lock that updates the learner model and copies its state into the shared one, V-trace."""
# PRELUDE
import threading, torch.multiprocessing as mp
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.pi, self.v = nn.Linear(4, 12), nn.Linear(12, 2), nn.Linear(12, 1)
    def forward(self, x):
        h = torch.relu(self.f(x))
        return self.pi(h), self.v(h)[..., 0]
def act(model, free, full, buf):
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(3)
    x = torch.zeros(4)
    while (i := free.get()) is not None:
        with torch.no_grad():
            for t in range(5):
                lg, _ = model(x)
                a = torch.multinomial(lg.softmax(-1), 1, generator=g)
                buf["x"][i, t], buf["lg"][i, t], buf["a"][i, t] = x, lg, a[0]
                x = (x * 0.9 + (a.float() - 0.5) * torch.tensor([1.0, -1, 0.5, 0.2])).clone()
                buf["r"][i, t] = -x.abs().sum()
        full.put(i)
if __name__ == "__main__":
    ctx = mp.get_context("fork")
    actor, learner = Net().share_memory(), Net()
    learner.load_state_dict(actor.state_dict())
    buf = {k: torch.zeros(2, 5, *s).share_memory_() if k != "a" else torch.zeros(2, 5, dtype=torch.long).share_memory_() for k, s in (("x", (4,)), ("lg", (2,)), ("a", ()), ("r", ()))}
    free, full = ctx.SimpleQueue(), ctx.SimpleQueue()
    p = ctx.Process(target=act, args=(actor, free, full, buf))
    p.start()
    W(learner)
    opt = torch.optim.RMSprop(learner.parameters(), 1e-2, alpha=0.99, eps=0.01)
    lock, log = threading.Lock(), []
    def learn():
        for s in range(6):
            free.put(s % 2)
            i = full.get()
            b = {k: v[i].clone() for k, v in buf.items()}
            with lock:
                lg, v = learner(b["x"])
                lp = lg.log_softmax(-1).gather(1, b["a"][:, None])[:, 0]
                rho = (lp.detach() - b["lg"].log_softmax(-1).gather(1, b["a"][:, None])[:, 0]).exp().clamp(max=1)
                vs, acc = v.detach().clone(), torch.zeros(())
                for t in reversed(range(4)):
                    acc = rho[t] * (b["r"][t] + 0.99 * v[t + 1].detach() - v[t].detach()) + 0.99 * rho[t] * acc
                    vs[t] += acc
                loss = -(lp[:4] * rho[:4] * (b["r"][:4] + 0.99 * vs[1:] - v[:4].detach())).sum() + 0.5 * (vs[:4] - v[:4]).square().sum() + 0.01 * (lg.softmax(-1) * lg.log_softmax(-1)).sum()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(learner.parameters(), 40.0)
                opt.step()
                actor.load_state_dict(learner.state_dict())
                log.append(float(loss.detach()).hex())
    th = threading.Thread(target=learn, name="learner")
    th.start()
    th.join()
    free.put(None)
    p.join()
    print(log, p.exitcode, M(learner), M(actor), R(), [t.name for t in threading.enumerate()])
