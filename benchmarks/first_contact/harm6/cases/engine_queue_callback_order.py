"""Callbacks queued on the autograd engine (queue_callback, as DDP, FSDP and pipelines do) from tensor hooks, module hooks and custom backwards, nested and raising: their order, what they see, what comes out of backward."""
# PRELUDE
from torch.autograd import Variable

log = []
queue = Variable._execution_engine.queue_callback


class Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x * 1

    @staticmethod
    def backward(ctx, g):
        log.append(f"backward {ctx.name}")
        queue(lambda: log.append(f"end {ctx.name} grads {sum(p.grad is not None for p in m.parameters())}"))
        return g, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = net(1, 8, 12, 8), net(2, 8, 12, 4)

    def forward(self, x):
        x = Mark.apply(self.a(x), "middle")
        return Mark.apply(self.b(x), "out")


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for n, p in m.named_parameters():
    def post(p, n=n):
        log.append("post " + n)
        queue(lambda: log.append("queued post " + n))

    p.register_post_accumulate_grad_hook(post)
m.b.register_full_backward_pre_hook(lambda mod, g: queue(lambda: log.append("queued pre hook b")))


def outer():
    log.append("outer")
    queue(lambda: log.append("nested"))


for s in range(4):
    x, y = batch(s)
    opt.zero_grad()
    out = m(x)
    out.register_hook(lambda g: queue(outer))
    F.mse_loss(out, y).backward()
    log.append("returned")
    opt.step()
    print(s, len(log), M(m), log if s == 0 else H(log))


def bad():
    raise ValueError("from a queued callback")


for how in ("backward", "grad"):
    out = m(batch(9)[0])
    out.register_hook(lambda g: queue(bad))
    try:
        if how == "backward":
            out.sum().backward()
        else:
            torch.autograd.grad(out.sum(), list(m.parameters()))
    except Exception as e:
        print(how, type(e).__name__, e, e.__cause__, e.__context__)
try:
    queue(lambda: None)
except RuntimeError as e:
    print(str(e).split("\n")[0])
opt.zero_grad()
print(train(m, opt, 3, 20), M(m), H(log), log[-8:])
