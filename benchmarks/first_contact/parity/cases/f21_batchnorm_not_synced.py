from tiny import *
# pytorch docs SyncBatchNorm; many threads (e.g. "DDP degrades the performance", https://github.com/ylsung/VL_adapter/issues/8): BatchNorm over each rank's own samples
init()
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(3)
for _ in range(4):
    x, y = mine(torch.randn(16, 3, 8, 8, generator=g), torch.randint(0, 10, (16,), generator=g))
    F.cross_entropy(model(x), y).backward()
    opt.step(); opt.zero_grad()
