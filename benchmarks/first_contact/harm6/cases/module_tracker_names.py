"""torch.utils.module_tracker.ModuleTracker over steps with reuse, checkpointing and hooks: which modules are active in forward and backward, whether in backward, from hooks of tensors and modules; also torch.utils._debug_mode's relatives that only name modules."""
# PRELUDE
from torch.utils.checkpoint import checkpoint
from torch.utils.module_tracker import ModuleTracker

log = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.shared, self.b = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 4)

    def forward(self, x):
        h = self.shared(self.a(x))
        h = checkpoint(self.shared, h, use_reentrant=False)
        return self.b(self.shared(h))


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2), M(m))
tracker = ModuleTracker()


def note(what):
    log.append((what, tuple(sorted(tracker.parents)), tracker.is_bw))


m.shared.register_forward_pre_hook(lambda *a: note("pre shared"))
m.b.register_forward_hook(lambda mod, i, o: (note("after b"), o.register_hook(lambda g: note("grad of b")))[0])
for n, p in m.named_parameters():
    p.register_post_accumulate_grad_hook(lambda p, n=n: note("grad " + n))
for s in range(3):
    x, y = batch(s)
    log.clear()
    with tracker:
        note("begin")
        loss = F.mse_loss(m(x), y)
        note("between")
        loss.backward()
        note("end")
    opt.step()
    opt.zero_grad()
    print(s, loss.item().hex(), M(m), log if s == 0 else H(log))
with tracker:
    try:
        m(torch.ones(2, 3))
    except RuntimeError:
        note("after an error")
print(log[-1], len(tracker._known_modules))
print(train(m, opt, 2, 9), M(m), R())
