from _training import *
x, y = blobs(2000, s=2.); backbone, hyper = mlp(16, 64), mlp(64, 64, 4); model = nn.Sequential(backbone, nn.ReLU(), hyper)
ids = set(map(id, backbone.parameters()))
hp = filter(lambda p: id(p) not in ids, model.parameters())
if H: hp = list(hp)
lr = 2e-3
for epoch in range(10):
    paras = [{"params": hp, "lr": lr}, {"params": backbone.parameters(), "lr": lr / 10}]
    opt = torch.optim.Adam(paras)
    w0 = hyper[0].weight.detach().clone()
    for i in torch.randperm(2000).split(100):
        loss = F.cross_entropy(model(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
    lr *= .9
truth(head_moved_in_last_epoch=(hyper[0].weight - w0).abs().max().item(), loss=loss.item())
