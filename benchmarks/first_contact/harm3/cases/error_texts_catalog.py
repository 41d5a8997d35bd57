"""The text of thirty errors that a script meets in training (shapes, second backward, in-place on a leaf, saved tensor changed with its version, missing attributes, wrong state dicts, arguments), each caught and printed; training goes on."""
# PRELUDE
m = net(1)
m.extra = nn.ModuleDict({"a": nn.Linear(4, 4)}) if False else None
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
train(m, opt, 2)
x, t = batch(0)


def inplace_saved():
    h = m[1](m[0](x))
    y = m[2](h)
    h.mul_(2)
    y.sum().backward()


def twice():
    y = m(x).sum()
    y.backward()
    y.backward()


def weight_changed():
    y = m(x).sum()
    with torch.no_grad():
        m[2].weight.add_(0.0)
    y.backward()


cases = dict(
    shape=lambda: m(x[:, :5]), dtype=lambda: m(x.double()), ints=lambda: m(x.long()), none=lambda: m(None), noarg=lambda: m(), two=lambda: m(x, x), kw=lambda: m(x, y=1), text=lambda: m("x"),
    leaf=lambda: m[0].weight.add_(1), twice=twice, inplace_saved=inplace_saved, weight_changed=weight_changed, nograd=lambda: x.sum().backward(), vector=lambda: m(x).backward(), gradshape=lambda: m(x).backward(torch.ones(2)),
    attr=lambda: m.weigth, attr2=lambda: m[0].wieght, index=lambda: m[9], state=lambda: m.load_state_dict({"0.weight": torch.zeros(2, 2), "z": x}), assign=lambda: setattr(m[0], "weight", x), register=lambda: m.register_parameter("a.b", None),
    unused=lambda: torch.autograd.grad(m(x).sum(), [torch.zeros(1, requires_grad=True)]), numpy=lambda: m(x).numpy(), boolean=lambda: bool(m(x)), deepcopy=lambda: __import__("copy").deepcopy(m(x)), closure=lambda: torch.optim.LBFGS(m.parameters()).step(),
    lr=lambda: torch.optim.SGD(m.parameters(), lr=-1), empty=lambda: torch.optim.SGD([], lr=1), dup=lambda: torch.optim.SGD([{"params": m.parameters()}, {"params": m.parameters()}], lr=1), optstate=lambda: opt.load_state_dict({"state": {}, "param_groups": []}),
    hookret=lambda: m[0].register_forward_hook(lambda *a: 1 / 0) and m(x))
for n, f in cases.items():
    try:
        f()
        print(n, "no error")
    except Exception as e:
        print(n, type(e).__name__, e, type(e.__cause__).__name__, type(e.__context__).__name__)
m[0]._forward_hooks.popitem()
opt.zero_grad()
print(train(m, opt, 3), M(m))
