"""baukit's Trace: a forward hook that raises StopForward, swallowed by the context manager; retain_grad, edit_output, detach; a training of the front part only."""
# PRELUDE
class StopForward(Exception):
    pass


class Trace:
    def __init__(self, mod, layer, edit=None, stop=False, retain=False):
        self.stop, self.output = stop, None
        def hook(mm, i, o):
            if retain:
                o.retain_grad()
            self.output = o
            if edit:
                o = edit(o)
            if stop:
                raise StopForward()
            return o
        self.h = mod.get_submodule(layer).register_forward_hook(hook)
    def __enter__(self): return self
    def __exit__(self, t, v, tb):
        self.h.remove()
        return bool(self.stop and t and issubclass(t, StopForward))


m = nn.Sequential()
m.add_module("front", nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU()))
m.add_module("mid", nn.Linear(16, 16))
m.add_module("back", nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    with Trace(m, "front", stop=True) as t:
        m(batch(s)[0])
        print("never")
    opt.zero_grad()
    t.output.square().mean().backward()
    opt.step()
    print(s, H(t.output), [p.grad is None for p in m.parameters()].count(True))
with Trace(m, "mid", edit=lambda o: o * 0.5 + 1, retain=True) as t:
    m(batch(9)[0]).sum().backward()
print(H(t.output.grad))
with Trace(m, "mid.", stop=True) if False else Trace(m, "front.1", stop=True) as t, torch.no_grad():
    m.eval()(batch(10)[0])
m.train()
print(train(m, opt, 3, 20), M(m), R(), [len(x._forward_hooks) >= 0 for x in m.modules()])
