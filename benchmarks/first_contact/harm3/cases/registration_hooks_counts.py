"""Global registration hooks (parameters, buffers, submodules) and global forward hooks with always_call that count and replace: only the script's own registrations are seen."""
# PRELUDE
from torch.nn.modules import module as mod

log = []
hs = [mod.register_module_parameter_registration_hook(lambda m, n, p: log.append(("p", type(m).__name__, n)) or None),
      mod.register_module_buffer_registration_hook(lambda m, n, b: log.append(("b", type(m).__name__, n)) or None),
      mod.register_module_module_registration_hook(lambda m, n, s: log.append(("m", type(m).__name__, n)) or None)]
m = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
n0 = len(log)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3), n0, len(log))
m.append(nn.Identity())
m[0].weight = nn.Parameter(m[0].weight.detach() * 2)
print(log[n0:], M(m))
for h in hs:
    h.remove()
called = []
g = mod.register_module_forward_hook(lambda m, i, o: called.append(type(m).__name__), always_call=True)


class Boom(nn.Module):
    def forward(self, x):
        raise ValueError("boom")


try:
    nn.Sequential(nn.Identity(), Boom())(batch(0)[0])
except ValueError as e:
    print(e, called)
g.remove()
print(train(m, opt, 1), called)
