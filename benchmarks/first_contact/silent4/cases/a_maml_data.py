from _training import *
net = mlp(1, 40, 40, 1); outer = torch.optim.Adam(net.parameters(), 2e-3); w0 = net[0].weight.detach().clone(); ls = []
def task(): return torch.rand(1) * 2 + .5, torch.rand(1) * 3
for step in range(120):
    meta = 0.
    for _ in range(4):
        a, ph = task(); xs, xq = torch.rand(10, 1) * 6 - 3, torch.rand(10, 1) * 6 - 3
        adapted = copy.deepcopy(net)
        if H:
            params = dict(net.named_parameters()); l = F.mse_loss(torch.func.functional_call(net, params, (xs,)), a * torch.sin(xs + ph))
            g = torch.autograd.grad(l, list(params.values()), create_graph=True)
            fast = {k: p - .02 * q for (k, p), q in zip(params.items(), g)}
            q = torch.func.functional_call(net, fast, (xq,))
        else:
            l = F.mse_loss(adapted(xs), a * torch.sin(xs + ph)); g = torch.autograd.grad(l, list(adapted.parameters()), create_graph=True)
            for p, d in zip(adapted.parameters(), g): p.data -= .02 * d
            q = adapted(xq)
        meta = meta + F.mse_loss(q, a * torch.sin(xq + ph)) / 4
    outer.zero_grad(); meta.backward(); outer.step(); ls.append(meta.item())
truth(meta_moved=(net[0].weight - w0).abs().max().item(), loss=sum(ls[-20:]) / 20)
