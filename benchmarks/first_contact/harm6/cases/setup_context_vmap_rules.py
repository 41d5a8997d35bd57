"""Functions with setup_context, generate_vmap_rule, own vmap and jvp staticmethods, mark_dirty, mark_non_differentiable, set_materialize_grads(False) and save_for_forward inside a watched model, also under grad, vmap and jvp: values, flags, error texts."""
# PRELUDE
import torch.func as tf

calls = []


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        y, dx = output
        ctx.mark_non_differentiable(dx)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, dx)
        ctx.save_for_forward(x, dx)
        calls.append("setup cube")

    @staticmethod
    def backward(ctx, g, gdx):
        calls.append(("cube", g is None, gdx is None))
        x, dx = ctx.saved_tensors
        return None if g is None else g * dx

    @staticmethod
    def jvp(ctx, t):
        x, dx = ctx.saved_tensors
        return t * dx, None


class Roll(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return torch.roll(x, k, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return Roll.apply(g, -ctx.k), None

    @staticmethod
    def vmap(info, dims, x, k):
        calls.append(("vmap", info.batch_size, dims))
        return Roll.apply(x.movedim(dims[0], 0), k), 0


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(0.5)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x, inplace=True):
        h = Roll.apply(self.a(x), 2)
        y, dx = Cube.apply(h)
        assert not dx.requires_grad
        h = y + 0.1 * dx
        if inplace:
            h = Half.apply(h.clone())
        return self.b(h)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.01)
for s in range(4):
    print(train(m, opt, 1, s), M(m))
    p = {k: v.detach() for k, v in m.named_parameters()}
    x, y = batch(30 + s)
    f = lambda p, x: tf.functional_call(m, p, (x, False)).sum()
    print(H(tf.grad(f)(p, x)), H(tf.vmap(tf.grad(f), in_dims=(None, 0))(p, x)))
try:
    print(H(tf.jvp(lambda x: tf.functional_call(m, p, (x, False)), (x,), (x,))))
except Exception as e:
    print(type(e).__name__, str(e)[:120])
(g,) = torch.autograd.grad(m(x).square().sum(), [m.a.weight], create_graph=True)
g.sum().backward()
print(M(m), len(calls), H([str(c) for c in calls]), calls[:5])
