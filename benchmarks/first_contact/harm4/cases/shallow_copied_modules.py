"""copy.copy of a watched model, replicas that share __dict__ content, and a module whose __dict__ another takes over: calls, hooks of the script's own, training of either."""
# PRELUDE
import copy

m = net(3)
calls = []
m[0].register_forward_hook(lambda mod, a, o: calls.append(id(mod) == id(m[0])))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
c = copy.copy(m)
c0 = copy.copy(m[0])
print(c is m, c[0] is m[0], c0.weight is m[0].weight, H(c(batch(1)[0])), H(c0(batch(1)[0])), calls)
print(train(c, opt, 2, 2))
r = m[0]._replicate_for_data_parallel()
r.weight, r.bias = m[0].weight.detach() * 1, m[0].bias.detach() * 1
print(H(r(batch(1)[0])), calls[-1])
t = nn.Sequential.__new__(nn.Sequential)
t.__dict__.update(m.__dict__)
print(train(t, opt, 2, 4))
b = copy.copy(m[0])
b.register_forward_hook(lambda mod, a, o: o * 2)
print(H(b(batch(1)[0])), H(m[0](batch(1)[0])), len(calls))
del c, t, r, b
import gc

gc.collect()
print(train(m, opt, 2, 6), M(m), len(calls), R())
