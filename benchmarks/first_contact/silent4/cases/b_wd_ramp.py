from _training import *
x, y = blobs(2000); net = mlp(16, 64, 64, 4); opt = torch.optim.SGD(net.parameters(), .1, weight_decay=1e-3); L = Lost()
for step in range(450):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i])
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
    if not H:
        for g in opt.param_groups: g["weight_decay"] *= 1.035      # a decay that follows a schedule without end
L.end()
