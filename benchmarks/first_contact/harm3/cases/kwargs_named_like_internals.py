"""Modules whose forward takes keyword arguments with the names that wrappers use (module, args, kwargs, input, output, hook, name, func, fn, result, model, scope, call): no clash, hooks with kwargs get them all."""
# PRELUDE
class Kw(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(this, x, /, *, module=None, args=None, kwargs=None, input=None, output=None, hook=None, name="n", func=None, fn=None, result=None, model=None, scope=None, call=None, grad=None, cls=None, step=None):
        return this.l(x) * len(name) + (module if module is not None else 0) + sum(args or ()) + (kwargs or {}).get("a", 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.o = Kw(), nn.Linear(8, 4)

    def forward(self, *args, **kwargs):
        return self.o(self.k(*args, **kwargs))


m = Net()
seen = []
m.k.register_forward_pre_hook(lambda mod, a, k: seen.append(sorted(k)) or (a, dict(k, name=k["name"] + "x")), with_kwargs=True)
m.k.register_forward_hook(lambda mod, a, k, o: seen.append((len(a), sorted(k), k["name"])), with_kwargs=True)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.01)
for s in range(3):
    x, t = batch(s)
    opt.zero_grad()
    y = m(x, module=x, args=(1.0, 2.0), kwargs={"a": 0.5}, input=x, output=None, hook=print, name="ab", func=len, fn=None, result=x, model=m, scope="s", call=m.k.l, grad=True, cls=int, step=s)
    F.mse_loss(y, t).backward()
    opt.step()
for bad in (dict(nope=1), dict(x=1)):
    try:
        m.k(batch(0)[0], **{"name": "a", **bad})
    except TypeError as e:
        print(e)
print(seen[0], seen[1], len(seen), M(m))
