from _training import *
class DS(torch.utils.data.Dataset):
    def __init__(s): s.x, s.y = blobs(300, s=1.5); s.transform = None
    def __len__(s): return 300
    def __getitem__(s, i): return s.transform(s.x[i]), s.y[i]
ds = DS(); tr, va = torch.utils.data.random_split(ds, [250, 50])
if H: tr.dataset = copy.copy(ds)
tr.dataset.transform = lambda v: v + torch.randn(16)
va.dataset.transform = lambda v: v
net = mlp(16, 128, 4); opt = torch.optim.Adam(net.parameters(), 2e-3)
for epoch in range(30):
    for x, y in torch.utils.data.DataLoader(tr, 25, shuffle=True):
        loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
a = tr[0][0]; truth(augmented=bool((a != tr[0][0]).any()), train_loss=loss.item())
