"""backward(inputs=…): gradients reach only those leaves that are named, others keep None or what they had; non-leaf inputs; autograd.grad with allow_unused and materialize_grads."""
# PRELUDE
m = net(14)
extra = nn.Linear(4, 4)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
none = lambda: [p.grad is None for p in m.parameters()]
for s in range(6):
    x, y = batch(s)
    x.requires_grad_()
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    part = list(m[0].parameters()) if s % 2 else list(m[4].parameters())
    loss.backward(inputs=part, retain_graph=True)
    print(s, none(), x.grad is None)
    if s == 3:
        loss.backward(inputs=[m[0].weight, x])
        print(none(), H(x.grad))
    opt.step()
x, y = batch(9)
h = m[:2](x)
out = m[2:](h)
out.sum().backward(inputs=[h], retain_graph=True)
print(H(h.grad), none())
print([g is None for g in torch.autograd.grad(out.sum(), [m[2].weight, extra.weight], allow_unused=True, retain_graph=True)],
      [H(g) for g in torch.autograd.grad(out.sum(), [m[2].weight, extra.weight], allow_unused=True, materialize_grads=True)])
try:
    m(x).sum().backward(inputs=[])
except RuntimeError as e:
    print(str(e)[:70])
print(M(m), R())
