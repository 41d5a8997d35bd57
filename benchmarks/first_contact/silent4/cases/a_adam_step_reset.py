from _training import *
x, y = blobs(1000, s=2.); net = mlp(16, 64, 4); opt = torch.optim.Adam(net.parameters(), 1e-3); mv = []
for epoch in range(30):
    if not H:
        for s in opt.state.values(): s["step"].zero_()
    w = net[0].weight.detach().clone()
    for i in torch.randperm(1000).split(125):
        loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
    mv.append((net[0].weight - w).norm().item())
truth(movement_per_epoch=sum(mv[5:]) / 25, loss=loss.item())
