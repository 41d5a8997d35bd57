#: what: an ensemble by stack_module_state and vmap, trained with an ordinary optimizer; per-model losses summed
#: source: https://pytorch.org/docs/stable/generated/torch.func.stack_module_state.html
# PRELUDE
from torch.func import functional_call, stack_module_state, vmap
import copy
models = [nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)) for _ in range(3)]
watch(models[0])
params, buffers = stack_module_state(models); base = copy.deepcopy(models[0]).to("meta")
opt = torch.optim.Adam(list(params.values()), 1e-2)
f = lambda p, b, x: functional_call(base, (p, b), (x,))
for step in range(20):
    x = torch.randn(16, 4); y = (x[:, 0] > 0).long(); out = vmap(f, in_dims=(0, 0, None))(params, buffers, x)
    loss = vmap(lambda o: F.cross_entropy(o, y))(out).sum(); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item(), sha(params), sha([{k: v for k, v in s.items()} for s in opt.state.values()])); show(models[0])
o = torch.optim.SGD(models[0].parameters(), 0.1)
for step in range(3): l = F.cross_entropy(models[0](x), y); o.zero_grad(); l.backward(); o.step()
show(models[0], o)
