"""torch._fused_adam_, _fused_adamw_, _fused_sgd_ and _fused_adagrad_ with a grad_scale and found_inf, by hand and through fused=True with GradScaler, must keep bits, steps and versions."""
# PRELUDE
for kind in ("adam", "adamw", "sgd", "adagrad"):
    m = net(8)
    W(m)
    ps = list(m.parameters())
    a, b, st = [torch.zeros_like(p) for p in ps], [torch.zeros_like(p) for p in ps], [torch.zeros(()) for _ in ps]
    for s in range(4):
        x, y = batch(s)
        m.zero_grad()
        (F.mse_loss(m(x), y) * 128).backward()
        gs = [p.grad for p in ps]
        found = torch.tensor(float(s == 2))
        kw = dict(grad_scale=torch.tensor(128.0), found_inf=found)
        with torch.no_grad():
            if s != 2:
                torch._foreach_add_(st, 1)
            if kind.startswith("adam") :
                getattr(torch, f"_fused_{kind}_")(ps, gs, a, b, [], st, lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False, **kw)
            elif kind == "sgd":
                torch._fused_sgd_(ps, gs, a, weight_decay=0.0, momentum=0.9, lr=0.05, dampening=0.0, nesterov=True, maximize=False, is_first_step=s == 0, **kw)
            else:
                torch._fused_adagrad_(ps, gs, b, st, lr=1e-2, lr_decay=0.0, weight_decay=0.0, eps=1e-10, maximize=False, **kw)
        print(kind, s, M(m), H(a, b, st), [p._version for p in ps], [g._version for g in gs], [t._version for t in a])
for cls, kw in ((torch.optim.Adam, dict(amsgrad=True)), (torch.optim.AdamW, {}), (torch.optim.SGD, dict(momentum=0.9)), (torch.optim.Adagrad, {})):
    m = net(9)
    W(m)
    opt = cls(m.parameters(), lr=1e-2, fused=True, **kw)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    for s in range(5):
        x, y = batch(s)
        opt.zero_grad()
        scaler.scale(F.mse_loss(m(x), y)).backward()
        if s == 3:
            m[0].weight.grad[0, 0] = float("inf")
        scaler.step(opt)
        scaler.update()
        print(cls.__name__, s, M(m), scaler.get_scale(), H(opt.state_dict()["state"]), [p._version for p in m.parameters()])
