"""Operators of one's own (torch.library.custom_op with autograd, a mutating one, one in a Library) count their calls; used in models, losses and metrics with nan."""
# PRELUDE
from torch import Tensor
seed(90)
calls = {"f": 0, "b": 0, "m": 0, "lib": 0}


@torch.library.custom_op("fc9::softclip", mutates_args=())
def softclip(x: Tensor, c: float) -> Tensor:
    calls["f"] += 1
    return torch.from_numpy(np.tanh(x.detach().numpy() / c) * c)


@softclip.register_fake
def _(x, c):
    return torch.empty_like(x)


def back(ctx, g):
    calls["b"] += 1
    (y,) = ctx.saved_tensors
    return g * (1 - (y / ctx.c) ** 2), None


softclip.register_autograd(back, setup_context=lambda ctx, inputs, output: (ctx.save_for_backward(output), setattr(ctx, "c", inputs[1])))


@torch.library.custom_op("fc9::count_bad", mutates_args={"acc"})
def count_bad(x: Tensor, acc: Tensor) -> None:
    calls["m"] += 1
    acc += (~torch.isfinite(x)).sum()


lib = torch.library.Library("fc9b", "FRAGMENT")
lib.define("halve(Tensor x) -> Tensor")


def halve(x):
    calls["lib"] += 1
    return x / 2


lib.impl("halve", halve, "CompositeImplicitAutograd")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 16), nn.Linear(16, 2)
        self.register_buffer("bad", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        h = softclip(self.a(x), 2.0)
        count_bad(h.detach(), self.bad)
        return self.b(torch.ops.fc9b.halve(h))


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
acc = torch.zeros((), dtype=torch.long)
for step in range(15):
    x = torch.randn(8, 5)
    o = net(x)
    loss = softclip(F.cross_entropy(o, torch.randint(0, 2, (8,)), reduction="none"), 3.0).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(x * math.nan) if step % 5 == 2 else net(x)
        r = e / (e - e)
        count_bad(r, acc)
    print(step, dig(loss, e), int(net.bad), int(acc), calls)
end(net, opt)
