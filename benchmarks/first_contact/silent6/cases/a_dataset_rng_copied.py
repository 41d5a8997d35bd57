"""From wolny/pytorch-3dunet issue 32 (also xingyizhou/CenterNet issue 233).
Wrong: augmentations draw from a RandomState that the dataset was made with; each worker has a copy, so batches of all workers get the same
augmentations, and so does each epoch.  Could know: partly (equal draws on different samples; the generator is an attribute of the dataset).
"""
import sys, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class DS(Dataset):
    def __init__(self): self.x = torch.randn(256, 1, 12, 12); self.y = (self.x.mean((1, 2, 3)) > 0).long(); self.rs = np.random.RandomState(47)
    def __len__(self): return 256
    def __getitem__(self, i): k = int(self.rs.randint(4)); c = float(self.rs.uniform(.5, 1.5)); return torch.rot90(self.x[i], k, (1, 2)) * c, self.y[i], torch.tensor([k, c])
def init(w): torch.utils.data.get_worker_info().dataset.rs = np.random.RandomState(torch.initial_seed() % 2 ** 31)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2)); opt = torch.optim.Adam(net.parameters(), 1e-3); seen = []
if __name__ == "__main__":
    dl = DataLoader(DS(), 16, shuffle=True, num_workers=2, worker_init_fn=init if H else None)
    for epoch in range(5):
        for i, (x, y, aug) in enumerate(dl):
            loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step(); seen.append(tuple(aug[:, 1].tolist()))
        print(epoch, round(loss.item(), 4))
    print("check: different sets of augmentations", len(set(seen)), "of", len(seen), "batches")
