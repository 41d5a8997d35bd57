"""Backward split into input and weight gradients by GradientEdge (zero bubble), node hooks and metadata, autograd.grad from edges, is_leaf roots, backward on a tuple of edges."""
# PRELUDE
from torch.autograd.graph import get_gradient_edge

m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    x, t = batch(s)
    x.requires_grad_()
    opt.zero_grad()
    h = m[1](m[0](x))
    y = m[4](m[3](m[2](h)))
    loss = F.mse_loss(y, t)
    e = get_gradient_edge(h)
    e.node.metadata["tag"] = s
    (gh,) = torch.autograd.grad(loss, [e], retain_graph=True)
    ws = torch.autograd.grad(loss, [get_gradient_edge(p) for p in m[2:].parameters()], retain_graph=False)
    for p, g in zip(m[2:].parameters(), ws):
        p.grad = g
    torch.autograd.backward([e], [gh], inputs=[x, *m[0].parameters()])
    opt.step()
    print(s, H(gh, x.grad), e.node.name(), e.node.metadata["tag"], M(m))
