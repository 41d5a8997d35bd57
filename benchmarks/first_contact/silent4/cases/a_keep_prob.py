from _training import *
x, y = blobs(2000, s=2.); tx, ty = blobs(1000, s=2., seed=4); keep_prob = .9
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(1 - keep_prob if H else keep_prob), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(1 - keep_prob if H else keep_prob), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(300):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
net.eval(); truth(train_loss=loss.item(), test_loss=F.cross_entropy(net(tx), ty).item(), acc=acc(net, tx, ty))
