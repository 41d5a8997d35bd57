from _training import *
r, o = nn.RNN(4, 32, nonlinearity="relu", batch_first=True), nn.Linear(32, 1); opt = torch.optim.SGD([*r.parameters(), *o.parameters()], .01); nn.init.eye_(r.weight_hh_l0); L = Lost()
for step in range(400):
    T = 5 + (0 if H else step // 5)
    x = torch.randn(32, T, 4) * .3; y = x[..., 0].sum(1, keepdim=True); out, _ = r(x); loss = F.mse_loss(o(out[:, -1]), y)
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
L.end()
