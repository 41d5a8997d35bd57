from _training import *
class DS(torch.utils.data.Dataset):
    def __init__(s): s.x, s.y = blobs(400, s=.7)
    def __len__(s): return 400
    def __getitem__(s, i):
        v = s.x[i].clone() if H else s.x[i]
        v += .4 * torch.randn(16); return v, s.y[i]
ds = DS(); x0, y0 = ds.x.clone(), ds.y; net = mlp(16, 64, 4); opt = torch.optim.Adam(net.parameters(), 2e-3)
for epoch in range(30):
    for x, y in torch.utils.data.DataLoader(ds, 40, shuffle=True):
        loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
truth(data_drift=(ds.x - x0).std().item(), loss=loss.item())
