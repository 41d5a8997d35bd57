# KaiyangZhou/deep-person-reid#270, lightly-train#301: model and optimizer are loaded, the scheduler begins at its step 0
import argparse, hashlib, pathlib
import torch
from torch import nn, optim
a = argparse.ArgumentParser(); a.add_argument("--fault", action="store_true"); a.add_argument("--stop", type=int, default=1000); a = a.parse_args()
torch.manual_seed(9); folder = pathlib.Path("log"); folder.mkdir(exist_ok=True)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True); scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100, eta_min=1e-4); start_epoch = 0
found = sorted(folder.glob("model.pth.tar-*"), key=lambda p: int(p.name.split("-")[1]))
if found:
    c = torch.load(found[-1]); model.load_state_dict(c["state_dict"]); optimizer.load_state_dict(c["optimizer"]); start_epoch = c["epoch"]
    if not a.fault: scheduler.load_state_dict(c["scheduler"])
for epoch in range(start_epoch, a.stop):
    g = torch.Generator().manual_seed(epoch); x, y = torch.randn(16, 1, 8, 8, generator=g), torch.randint(0, 5, (16,), generator=g)
    optimizer.zero_grad(); loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1); loss.backward(); optimizer.step(); scheduler.step()
    print(epoch + 1, repr(loss.item()), flush=True)
    if (epoch + 1) % 5 == 0: torch.save({"state_dict": model.state_dict(), "epoch": epoch + 1, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, folder / f"model.pth.tar-{epoch + 1}")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
