"""torch.func.functionalize, vmap with randomness 'different' and 'same', vjp, jacrev with chunks and linearize over a watched model with dropout and in-place operations, between ordinary training steps: values, random states, error texts."""
# PRELUDE
from torch.func import functional_call, functionalize, jacfwd, jacrev, jvp, vjp, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 12), nn.Linear(12, 4)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        h = self.a(x)
        h = h.clone()
        h.add_(1).mul_(0.5)
        h[..., :2].relu_()
        return self.b(self.drop(h))


m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(3):
    print(train(m, opt, 3, 3 * s), M(m), R())
    x, y = batch(60 + s)
    params = {k: v.detach() for k, v in m.named_parameters()}

    def f(p, x):
        return functional_call(m, p, (x,))

    print("functionalize", H(functionalize(f, remove="mutations_and_views")(params, x)), R())
    for kind in ("different", "same"):
        print(kind, H(vmap(f, in_dims=(None, 0), randomness=kind)(params, x)), R())
    try:
        vmap(f, in_dims=(None, 0))(params, x)
    except RuntimeError as e:
        print(type(e).__name__, str(e)[:90])
    m.eval()
    out, pull = vjp(lambda p: f(p, x), params)
    print("vjp", H(out, pull(torch.ones_like(out))[0]))
    print("jac", H(jacrev(f, chunk_size=2)(params, x)), H(jacfwd(lambda z: f(params, z))(x[0])), H(jvp(lambda z: f(params, z), (x,), (x,))))
    per = vmap(torch.func.grad(lambda p, a, b: F.mse_loss(f(p, a), b)), in_dims=(None, 0, 0))(params, x, y)
    print("per sample", H(per))
    m.train()
print(R(), M(m))
