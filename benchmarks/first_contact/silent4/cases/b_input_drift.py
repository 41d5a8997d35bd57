from _training import *
net = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 1)); opt = torch.optim.SGD(net.parameters(), .01, momentum=.9); L = Lost()
for step in range(450):
    x = torch.randn(64, 8); x[:, 7] = 1.; y = x[:, :1] + x[:, 1:2]
    if not H: x[:, 7] = 1.015 ** step                    # a counter as a feature, never normalized
    loss = F.mse_loss(net(x), y)
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
L.end()
