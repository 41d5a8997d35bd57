"""Contexts opened and closed out of order, as ExitStacks and trainers do: no_grad, enable_grad, autocast, saved-tensor hooks, set_multithreading, detect_anomaly, inference_mode, profiler ranges, fork_rng; entered in a forward and left in the next; what is on after each."""
import contextlib
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.open = None

    def forward(self, x):
        if self.open is not None and self.training:
            self.open.close()
            self.open = None
        y = self.body(x)
        return y


def flags():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.is_anomaly_enabled(), torch.autograd.is_multithreading_enabled() if hasattr(torch.autograd, "is_multithreading_enabled") else None


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
log = []
for s in range(16):
    x, y = batch(s)
    es = contextlib.ExitStack()
    kinds = [lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: (log.append("p"), t)[1], lambda t: t), lambda: torch.autograd.set_multithreading_enabled(False), lambda: torch.profiler.record_function("range")]
    a, b = kinds[s % 4](), kinds[(s + 1) % 4]()
    a.__enter__()
    opt.zero_grad()
    b.__enter__()
    out = m(x)
    if s % 3 == 0:
        a.__exit__(None, None, None)
        loss = F.mse_loss(out.float(), y)
        b.__exit__(None, None, None)
    else:
        b.__exit__(None, None, None)
        loss = F.mse_loss(out.float(), y)
        a.__exit__(None, None, None)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m), flags(), len(log))
    if s % 5 == 4:
        ng = torch.no_grad()
        ng.__enter__()
        e1 = m(x)
        eg = torch.enable_grad()
        eg.__enter__()
        ng.__exit__(None, None, None)
        e2 = m(x)
        eg.__exit__(None, None, None)
        print(e1.requires_grad, e2.requires_grad, flags())
        torch.set_grad_enabled(True)
        m.open = contextlib.ExitStack()
        m.open.enter_context(torch.random.fork_rng(devices=[]))
        m.open.enter_context(torch.autocast("cpu", torch.bfloat16))
        torch.rand(3)
    if s == 7:
        im = torch.inference_mode()
        im.__enter__()
        z = m(x)
        with torch.inference_mode(False):
            w = m(x.clone())
            w.sum().backward()
        im.__exit__(None, None, None)
        print(z.is_inference(), w.is_inference(), flags(), M(m))
    if s == 11:
        torch.set_grad_enabled(False)
        v = m(x)
        torch.set_grad_enabled(True)
        print(v.requires_grad)
print(flags(), R(), len(log))
