from _training import *
x, y = blobs(2000); net = mlp(16, 64, 4); w0 = net[0].weight.detach().clone()
for step in range(200):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); net.zero_grad(); loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            if H: p -= .1 * p.grad
            else: p = p - .1 * p.grad
truth(moved=(net[0].weight - w0).abs().max().item(), loss=loss.item())
