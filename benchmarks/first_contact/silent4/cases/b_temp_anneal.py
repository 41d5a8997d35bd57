from _training import *
x, y = blobs(2000, s=2.5); net = mlp(16, 64, 4); opt = torch.optim.Adam(net.parameters(), 1e-3); L = Lost(); T = 1.
for step in range(450):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]) / T, y[i])
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step(); T = max(T * .985, .5 if H else 0)
L.end()
