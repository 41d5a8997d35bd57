"""A backward inside a gradient hook, and one inside a custom Function's backward (other graphs, other model).

Source: https://github.com/pytorch/pytorch/issues/5219
"""
# PRELUDE
m, aux = net(0), net(1); W(m); W(aux)
class Re(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x.clone()
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            t = ctx.saved_tensors[0].detach().requires_grad_(); z = torch.tanh(t).sum()
            (d,) = torch.autograd.grad(z, t)
        return g * d
n = []
def hook(g):
    with torch.enable_grad():
        a = aux(batch(7)[0]).mean(); a.backward(); n.append(float(a.detach()).hex())
opt = torch.optim.SGD(m.parameters(), 0.1); oa = torch.optim.SGD(aux.parameters(), 0.1)
for s in range(4):
    x, y = batch(s); opt.zero_grad(); oa.zero_grad()
    out = Re.apply(m(x)); out.register_hook(hook)
    loss = F.mse_loss(out, y); loss.backward(); opt.step(); oa.step(); print(float(loss.detach()).hex())
print(n, M(m), M(aux))
