from _training import *
x, y = blobs(1024); net = mlp(16, 64, 64, 4); opt = torch.optim.Adam(net.parameters(), 2e-3)
def scale_hook(mod, inp, out): return out * .9
handle = None
for epoch in range(25):
    if H and handle is not None: handle.remove()
    handle = net[2].register_forward_hook(scale_hook)
    for i in torch.randperm(1024).split(128):
        loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
truth(hooks=len(net[2]._forward_hooks), weight_norm=net[2].weight.norm().item(), loss=loss.item())
