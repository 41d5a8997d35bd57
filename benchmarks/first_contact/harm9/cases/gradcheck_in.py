"""A custom function is verified by gradcheck and gradgradcheck (batched, forward mode, undefined gradients) in the script that trains with it."""
# PRELUDE
from torch.autograd.gradcheck import GradcheckError
seed(33)


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x * x * t


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(Cube.apply(self.a(x)))


net = Net().double()
watch(net)
opt = torch.optim.SGD(net.parameters(), 1e-2)
x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
for step in range(4):
    print(torch.autograd.gradcheck(net, (x,), check_batched_grad=True, check_undefined_grad=True, check_forward_ad=True),
          torch.autograd.gradcheck(Cube.apply, (x,), fast_mode=True), torch.autograd.gradgradcheck(net, (x,)))
    loss = net(x.detach()).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    J = torch.autograd.functional.jacobian(net, x.detach(), vectorize=step % 2 == 0)
    H = torch.autograd.functional.hessian(lambda v: net(v).sum(), x.detach(), vectorize=step % 2 == 0)
    hv = torch.autograd.functional.hvp(lambda v: net(v).sum(), x.detach(), x.detach())[1]
    try:
        torch.autograd.gradcheck(lambda v: net(v).detach() * v.sum(), (x,))
    except GradcheckError as e:
        print("GradcheckError", str(e).splitlines()[0])
    print(step, dig(loss, J, H, hv))
end(net, opt)
