"""A SIGUSR1 handler evaluates the model, saves a checkpoint and even trains another model; the signal comes (raise_signal, pthread_kill from a thread, kill from a child) between steps, inside a forward, a hook, a custom backward, an optimizer's closure."""
import io, signal, subprocess, threading
# PRELUDE
log = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.probe = net(), nn.Identity()
        self.when = ""

    def forward(self, x):
        h = self.body(x)
        if self.when == "forward" and torch.is_grad_enabled():
            signal.raise_signal(signal.SIGUSR1)
        return Mid.apply(self.probe(h), self)


class Mid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, m):
        ctx.m = m
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        if ctx.m.when == "backward":
            signal.raise_signal(signal.SIGUSR1)
            for _ in range(10):
                pass
        return g, None


m, side = Net(), net(9)
W(m)
W(side)
opt, sopt = torch.optim.SGD(m.parameters(), 0.05), torch.optim.Adam(side.parameters(), 1e-2)
m.body[0].register_forward_hook(lambda *a: signal.raise_signal(signal.SIGUSR1) if m.when == "hook" and torch.is_grad_enabled() else None)


def handler(sig, frame):
    b = io.BytesIO()
    grad = torch.is_grad_enabled()
    with torch.no_grad():
        y = m.body(batch(99)[0])
    if torch.is_grad_enabled():
        torch.save(m.state_dict(), b)
        log.append((m.when, grad, H(y), H(b.getvalue()), train(side, sopt, 1, len(log))))
    else:
        log.append((m.when, grad, H(y)))


signal.signal(signal.SIGUSR1, handler)
for s, when in enumerate(["", "forward", "hook", "backward", "closure", "step", "thread", "child", "backward", "forward"] * 2):
    m.when = when
    x, y = batch(s)
    if when == "closure":
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            signal.raise_signal(signal.SIGUSR1)
            return loss
        loss = opt.step(closure)
    else:
        opt.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        opt.step()
    n = len(log)
    if when == "step":
        signal.raise_signal(signal.SIGUSR1)
    if when == "thread":
        t = threading.Thread(target=lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1))
        t.start(), t.join()
    if when == "child":
        subprocess.run(["kill", "-USR1", str(os.getpid())])
        while len(log) == n:
            pass
    print(s, when, loss.item().hex(), M(m), log[-1] if log else None)
print(len(log), H(log), M(side), R())
