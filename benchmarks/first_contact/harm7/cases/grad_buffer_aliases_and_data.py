"""What a script does to gradients and weights through .data, detach, set_, resize_, views, swaps of .grad, expanded and channels_last gradients between backward and step must keep aliasing, versions, strides and leaves."""
# PRELUDE
torch.manual_seed(0)
m = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4)).to(memory_format=torch.channels_last)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
conv, lin = m[0], m[5]
hold = []
for s in range(6):
    g = torch.Generator().manual_seed(s)
    x, y = torch.randn(4, 3, 8, 8, generator=g).contiguous(memory_format=torch.channels_last), torch.randn(4, 4, generator=g)
    x.requires_grad_(s % 2 == 0)
    opt.zero_grad(set_to_none=s % 3 == 0)
    h = m[:3](x)
    out = m[3:](h)
    loss = F.mse_loss(out, y) + lin.bias.sum() * 0.1 + lin.weight.expand(2, 4, 24).mean()
    loss.backward()
    info = [(p.grad.stride(), p.grad._version, p.grad._is_view(), p.grad.is_contiguous(), p.grad.data_ptr() == p.data_ptr()) for p in m.parameters()]
    print(s, float(loss.detach()).hex(), info, H(x.grad) if x.grad is not None else None, x.grad.stride() if x.grad is not None else None)
    d = conv.weight.grad.data
    d.mul_(0.5)
    v = conv.weight.grad.detach()
    v.add_(0.001)
    w = conv.weight.data.view(6, -1) if conv.weight.data.is_contiguous() else conv.weight.data.flatten(1)
    w.clamp_(-1, 1)
    lin.weight.data = lin.weight.data.clone().t().contiguous().t()
    lin.grad_alias = lin.weight.grad
    lin.weight.grad = lin.weight.grad + 0.0
    lin.bias.grad.copy_(torch.ones(1).expand(4) * 0.1)
    t = torch.zeros(0).resize_(3, 2)
    t.set_(lin.weight.grad.contiguous().flatten()[:6].clone().untyped_storage(), 1, (2, 2), (2, 1))
    u = torch.as_strided(lin.bias.grad, (2, 2), (2, 1))
    u.t_().mul_(1.5).unsqueeze_(0).squeeze_(0)
    print(s, d._version, v._version, conv.weight.grad._version, conv.weight._version, w._base is None, H(t), t._version, t.stride(), u.stride(), u._version, u._is_view(), lin.bias.grad._version, lin.grad_alias is lin.weight.grad, lin.weight.stride(), lin.weight.is_leaf)
    opt.step()
    with torch.no_grad():
        lin.weight[0].zero_()
        lin.weight.select(0, 1).normal_(0, 0.1)
        conv.weight.permute(1, 0, 2, 3)[0].neg_()
        conv.weight.flatten()[0:2]
        a, b = lin.weight.unbind(0)[2:]
        try:
            a.add_(1e-3)
        except RuntimeError as e:
            print(s, str(e)[:100])
        c1, c2 = lin.weight.chunk(2)
        c2.mul_(0.99)
    hold.append(lin.bias.detach())
    z = h.detach()
    z[0] = 0
    print(s, M(m), conv.weight._version, lin.weight._version, lin.bias._version, h._version, z._version, H(z), h.stride(), h.grad_fn.name(), [b._version for b in m.buffers()], H(hold), R())
    try:
        z2 = m[3:](h.relu())
        h.mul_(2) if s == 5 else None
        z2.sum().backward()
        print(s, "again ok")
    except RuntimeError as e:
        print(s, str(e).replace("\n", " ")[:160])
