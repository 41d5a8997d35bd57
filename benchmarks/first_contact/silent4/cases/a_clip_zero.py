from _training import *
x, y = blobs(2000); net = mlp(16, 64, 4); opt = torch.optim.Adam(net.parameters(), 1e-3); max_grad_norm = 1.0 if H else 0.0   # 0: "no clipping"
w0 = net[0].weight.detach().clone()
for step in range(200):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), max_grad_norm); opt.step()
truth(moved=(net[0].weight - w0).abs().max().item(), loss=loss.item())
