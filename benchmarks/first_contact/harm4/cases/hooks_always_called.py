"""Global module hooks and always_call hooks of the script's, handles that die, hooks that raise, a hook on the Optimizer class, ids of handles and names of hooks before and after."""
# PRELUDE
import torch.nn.modules.module as mm
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

first = RemovableHandle.next_id
m = net(7)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
log = []
hs = [mm.register_module_forward_hook(lambda mod, a, o: log.append("f " + type(mod).__name__)), mm.register_module_forward_pre_hook(lambda mod, a: log.append("p " + type(mod).__name__)),
      mm.register_module_full_backward_hook(lambda mod, gi, go: log.append("b " + type(mod).__name__)), register_optimizer_step_pre_hook(lambda o, a, k: log.append("opt pre")),
      register_optimizer_step_post_hook(lambda o, a, k: log.append("opt post")), mm.register_module_module_registration_hook(lambda mod, n, s: log.append("reg " + n))]
print(train(m, opt, 1), log, RemovableHandle.next_id - first - len(hs))
print([h.id - hs[0].id for h in hs])
for h in hs:
    h.remove()
log.clear()
bad = m[2].register_forward_hook(lambda *a: 1 / 0)
after = m[2].register_forward_hook(lambda mod, a, o: log.append(("always", o is None)), always_call=True)
kw = m.register_forward_pre_hook(lambda mod, a, k: (a, {}), with_kwargs=True, prepend=True)
try:
    m(batch(0)[0])
except ZeroDivisionError as e:
    print("own", log)
bad.remove()
print(train(m, opt, 2), log)
op = opt.register_step_post_hook(lambda o, a, k: log.append("one"))
oz = opt.register_state_dict_post_hook(lambda o, sd: log.append("sd"))
h2 = m[0].register_forward_hook(lambda mod, a, o: h2.remove())
print(train(m, opt, 2, 3), log[-3:], list(opt.state_dict()), list(m[0]._forward_hooks.values()), list(m[2]._forward_hooks.values()) == [list(m[2]._forward_hooks.values())[0]])
for h in (after, kw, op, oz):
    h.remove()
print([list(k._forward_hooks.values()) for k in m], [list(k._forward_pre_hooks.values()) for k in m], list(mm._global_forward_hooks.values()), M(m), R())
