from _training import *
net = mlp(8, 48, 48, 1, act=nn.SiLU); opt = torch.optim.SGD(net.parameters(), .02); L = Lost(); temp = 1e-4
for step in range(450):
    x = torch.randn(64, 8); y = x[:, :1] - x[:, 1:2]; loss = F.mse_loss(net(x), y)
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for p in net.parameters(): p += math.sqrt(2 * .02 * temp) * torch.randn_like(p) * .5
    temp *= .99 if H else 1.025                              # tempering with the sign turned
L.end()
