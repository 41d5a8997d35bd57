"""WGAN-GP: two models, two optimizers, gradient penalty by autograd.grad(create_graph), several critic steps.

Source: https://github.com/caogang/wgan-gp/issues/21
"""
# PRELUDE
torch.manual_seed(0)
g, d = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
W(g); W(d)
og, od = torch.optim.Adam(g.parameters(), 1e-3, (0.0, 0.9)), torch.optim.Adam(d.parameters(), 1e-3, (0.0, 0.9))
for s in range(4):
    for _ in range(2):
        real, fake = torch.randn(8, 2) + 1, g(torch.randn(8, 4)).detach()
        e = torch.rand(8, 1)
        mid = (e * real + (1 - e) * fake).requires_grad_()
        (gr,) = torch.autograd.grad(d(mid).sum(), mid, create_graph=True)
        loss = d(fake).mean() - d(real).mean() + 10 * (gr.norm(2, 1) - 1).square().mean()
        od.zero_grad(set_to_none=False); loss.backward(); od.step()
    for p in d.parameters():
        p.requires_grad_(False)
    lg = -d(g(torch.randn(8, 4))).mean()
    og.zero_grad(); lg.backward(); og.step()
    for p in d.parameters():
        p.requires_grad_(True)
    print(float(loss.detach()).hex(), float(lg.detach()).hex())
print(M(g), M(d), R())
