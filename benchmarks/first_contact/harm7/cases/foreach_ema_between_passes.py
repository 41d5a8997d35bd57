"""Versions of weights that torch._foreach calls change, and autograd's error about a weight changed between forward and backward, must be the same."""
# PRELUDE
m = net(6)
W(m)
ema = [p.detach().clone() for p in m.parameters()]
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, foreach=True)
ps = list(m.parameters())
for s in range(4):
    x, y = batch(s)
    opt.zero_grad(set_to_none=False)
    loss = F.mse_loss(m(x), y)
    loss.backward()
    gs = [p.grad for p in ps]
    norms = torch._foreach_norm(gs)
    total = torch.linalg.vector_norm(torch.stack(norms))
    torch._foreach_mul_(gs, (1.0 / (total + 1e-6)).clamp(max=1.0))
    opt.step()
    torch._foreach_lerp_(ema, [p.data for p in ps], 0.1)
    with torch.no_grad():
        torch._foreach_mul_(ps, 0.999)
        torch._foreach_clamp_max_(ps, 2.0)
        torch._foreach_addcmul_(ema, gs, gs, -0.01)
        torch._foreach_copy_([p[:1] for p in ema], [p[:1] for p in ps])
    print(s, H(total), H(ema), [p._version for p in ps], [g._version for g in gs], [e._version for e in ema], [b._version for v in opt.state.values() for b in v.values()])
    print(s, M(m), [e.stride() for e in ema])
x, y = batch(9)
for how in ("foreach", "single", "data", "view", "copy", "fused", "zero"):
    loss = F.mse_loss(m(x), y)
    with torch.no_grad():
        if how == "foreach":
            torch._foreach_add_(ps, 0.0)
        elif how == "single":
            ps[2].add_(0.0)
        elif how == "data":
            torch._foreach_add_([p.data for p in ps], 0.0)
        elif how == "view":
            torch._foreach_add_([p.view(-1) for p in ps], 0.0)
        elif how == "copy":
            torch._foreach_copy_(ps, [p.clone() for p in ps])
        elif how == "zero":
            torch._foreach_zero_(ema)
        else:
            torch._fused_sgd_(ps, [torch.zeros_like(p) for p in ps], [], weight_decay=0.0, momentum=0.0, lr=0.0, dampening=0.0, nesterov=False, maximize=False, is_first_step=False)
    try:
        loss.backward()
        print(how, "ok", M(m), [p._version for p in ps])
    except RuntimeError as e:
        print(how, e, [p._version for p in ps])
