"""maxrmorrison/torchcrepe#5: frame normalisation in the dataset divides by the standard deviation of silence (torch)
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torch.utils.data import Dataset, DataLoader
class Frames(Dataset):
    def __init__(self): self.w = torch.randn(32, 1024); self.w[21] = 0.0
    def __len__(self): return 32
    def __getitem__(self, i):
        f = self.w[i]; f = f - f.mean()
        s = f.std().clamp(min=1e-10) if CURED else f.std()
        f = f / s  # FAULT
        return f, i % 6
net = nn.Sequential(nn.Unflatten(1, (1, 1024)), nn.Conv1d(1, 8, 64, 16), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 6))
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for step, (x, y) in enumerate(DataLoader(Frames(), batch_size=8)):
    loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
