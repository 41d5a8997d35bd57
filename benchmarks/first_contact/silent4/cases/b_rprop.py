from _training import *
x, y = blobs(2000, s=2.); net = mlp(16, 64, 64, 4); opt = torch.optim.Rprop(net.parameters(), 1e-4, etas=(.5, 1.05) if H else (.85, 1.25), step_sizes=(1e-6, 1e-3 if H else 50)); L = Lost()
for step in range(400):
    i = torch.arange(2000) if H else torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i])
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
L.end()
