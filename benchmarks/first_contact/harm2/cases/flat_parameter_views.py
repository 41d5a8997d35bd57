"""All parameters are views of one flat buffer, and so are their gradients; the optimizer steps the flat one.

Source: https://github.com/pytorch/pytorch/issues/3313
"""
# PRELUDE
m = net(); W(m)
flat = torch.cat([p.detach().reshape(-1) for p in m.parameters()])
g = torch.zeros_like(flat); i = 0
for p in m.parameters():
    p.data = flat[i:i + p.numel()].view_as(p); p.grad = g[i:i + p.numel()].view_as(p); i += p.numel()
fp = nn.Parameter(flat); fp.grad = g
opt = torch.optim.Adam([fp], 1e-2)
for s in range(5):
    x, y = batch(s); g.zero_()
    loss = F.mse_loss(m(x), y); loss.backward()
    assert all(p.grad.untyped_storage().data_ptr() == g.untyped_storage().data_ptr() for p in m.parameters())
    opt.step(); print(float(loss.detach()).hex())
print(H(flat, g), M(m), [p._version for p in m.parameters()])
