from _training import *
net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 3, padding=1)); opt = torch.optim.Adam(net.parameters(), 5e-3); wrong = 0
for step in range(150):
    lab = torch.zeros(4, 1, 20, 20); lab[:, :, 4:13, 5:14] = 4.; img = torch.randn(4, 3, 20, 20) * .3 + lab
    img = F.interpolate(img, size=(12, 12), mode="bilinear")
    y = F.interpolate(lab, size=(12, 12), mode="nearest" if H else "bilinear").long().squeeze(1)
    wrong += ((y != 0) & (y != 4)).sum().item()
    loss = F.cross_entropy(net(img), y); opt.zero_grad(); loss.backward(); opt.step()
truth(invented_labels=wrong, loss=loss.item())
