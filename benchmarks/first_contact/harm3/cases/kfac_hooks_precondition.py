"""K-FAC by a script's own hooks: forward_pre_hook keeps inputs, full_backward_hook keeps output gradients, running Kronecker factors, eigendecompositions every second step, gradients preconditioned in place before SGD."""
# PRELUDE
m = net(1)
fac = {}


def pre(mod, i):
    if torch.is_grad_enabled():
        a = torch.cat([i[0].detach(), torch.ones(len(i[0]), 1)], 1)
        fac.setdefault(mod, {})["A"] = fac.get(mod, {}).get("A", torch.eye(a.shape[1])).mul(0.9).add(a.T @ a / len(a), alpha=0.1)


def post(mod, gi, go):
    g = go[0].detach() * len(go[0])
    fac[mod]["G"] = fac[mod].get("G", torch.eye(g.shape[1])).mul(0.9).add(g.T @ g / len(g), alpha=0.1)


for l in m:
    if isinstance(l, nn.Linear):
        l.register_forward_pre_hook(pre)
        l.register_full_backward_hook(post)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.02, momentum=0.9)
for s in range(6):
    x, t = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), t)
    loss.backward()
    for l, f in fac.items():
        if s % 2 == 0:
            f["ea"], f["eg"] = torch.linalg.eigh(f["A"] + 1e-2 * torch.eye(len(f["A"]))), torch.linalg.eigh(f["G"] + 1e-2 * torch.eye(len(f["G"])))
        (da, qa), (dg, qg) = f["ea"], f["eg"]
        g = torch.cat([l.weight.grad, l.bias.grad[:, None]], 1)
        v = qg @ ((qg.T @ g @ qa) / (dg[:, None] * da[None] + 0.03)) @ qa.T
        l.weight.grad.copy_(v[:, :-1])
        l.bias.grad.copy_(v[:, -1])
    opt.step()
    print(s, loss.item().hex())
print(M(m), H([f["A"] for f in fac.values()]))
