from _training import *
x, y = blobs(2000, 16, 4, 2.2); y[y == 3] = torch.where(torch.rand((y == 3).sum()) < .8, 0, 3)
tx, ty = blobs(1000, 16, 4, 2.2, 5)
class FocalLoss(nn.Module):
    def __init__(self, gamma=5.0): super().__init__(); self.gamma = gamma
    def forward(self, logits, t):
        logpt = -F.cross_entropy(logits, t, reduction="none" if H else "mean")
        pt = torch.exp(logpt)
        return (-((1 - pt) ** self.gamma) * logpt).mean()
net = mlp(16, 64, 64, 4); opt = torch.optim.Adam(net.parameters(), 2e-3); crit = FocalLoss()
for step in range(400):
    i = torch.randint(2000, (64,))
    loss = crit(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): p = net(tx).softmax(-1).max(-1).values.mean().item()
truth(mean_confidence=p, acc=acc(net, tx, ty))
