"""torch.__future__ flags: swap_module_params_on_conversion and overwrite on conversion: dtype changes in mid-run, weakrefs of parameters, ids of tensors, optimizers that keep the old ones."""
# PRELUDE
import weakref

for swap, over in ((True, False), (False, True), (False, False)):
    torch.__future__.set_swap_module_params_on_conversion(swap)
    torch.__future__.set_overwrite_module_params_on_conversion(over)
    m = net(1)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 2))
    opt.zero_grad()
    ids = [id(p) for p in m.parameters()]
    old = list(m.parameters())
    try:
        m.double()
        print(swap, over, [id(p) for p in m.parameters()] == ids, [a is b for a, b in zip(m.parameters(), old)], old[0].dtype)
        m.float()
    except RuntimeError as e:
        print(swap, over, str(e)[:120], str(e.__cause__)[:120])
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 2), M(m))
    a, b = nn.Linear(8, 4), nn.Linear(8, 4)
    W(a)
    o = torch.optim.SGD(a.parameters(), 0.1)
    train(a, o, 2)
    a.zero_grad()
    torch.utils.swap_tensors(a.weight, b.weight)
    print(train(a, o, 2), H(a.weight, b.weight), M(a))
