"""Healthy: SGD, then stochastic weight averaging with SWALR and update_bn at the end; evaluation of both models every epoch."""
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
protos = torch.randn(5, 1, 8, 8)
Y = torch.randint(0, 5, (480,))
X = protos[Y] + torch.randn(480, 1, 8, 8)
loader = DataLoader(TensorDataset(X[:400], Y[:400]), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 10, 3, bias=False), nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 10, 3), nn.ReLU(), nn.Flatten(),
                      nn.Dropout(0.2), nn.Linear(160, 5))
swa = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
cosine, swalr = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=14), SWALR(opt, swa_lr=0.02, anneal_epochs=3)


def accuracy(m):
    m.eval()
    with torch.no_grad():
        return (m(X[400:]).argmax(1) == Y[400:]).float().mean().item()


for epoch in range(22):
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch >= 14:
        swa.update_parameters(model)
        swalr.step()
    else:
        cosine.step()
    acc = accuracy(model)
update_bn(loader, swa)
print(f"loss {loss.item():.3f} accuracy {acc:.3f} swa {accuracy(swa):.3f}")
