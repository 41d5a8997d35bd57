"""Healthy, 500 steps: regression with SWA (AveragedModel, SWALR, update_bn) and MC dropout for uncertainty each 50 steps (train mode, no_grad, 8 passes: meant). STEPS 500"""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
torch.set_num_threads(1); torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2)); opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
swa = AveragedModel(net); ss = SWALR(opt, 0.01, anneal_epochs=5); ms = torch.optim.lr_scheduler.MultiStepLR(opt, [10], 0.5); nll = nn.GaussianNLLLoss()
X = torch.randn(640, 6); Y = X[:, 0].sin() + X[:, 1] * X[:, 2] * 0.5 + 0.1 * torch.randn(640); dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), 32, shuffle=True)
n = 0
for epoch in range(25):
    net.train()
    for x, y in dl:
        o = net(x); loss = nll(o[:, 0], y, nn.functional.softplus(o[:, 1]) + 1e-3); opt.zero_grad(); loss.backward(); opt.step(); n += 1
    if epoch >= 15: swa.update_parameters(net); ss.step()
    else: ms.step()
    if epoch % 5 == 4:
        for m in net.modules():
            if isinstance(m, nn.BatchNorm1d): m.eval()
        with torch.no_grad(): u = torch.stack([net(X[:64])[:, 0] for _ in range(8)]).std(0).mean()
update_bn(dl, swa)
print(f"STEPS {n} uncertainty {u:.3f} loss {loss:.3f}")
