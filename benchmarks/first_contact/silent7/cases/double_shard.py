"""accelerate with a loader whose sampler already splits the data over ranks."""
import argparse, torch, torch.nn as nn, torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, Dataset, DistributedSampler
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
accelerator = Accelerator(cpu=True)

class Data(Dataset):
    def __init__(self, n=1024):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 16, generator=g)
        self.y = torch.tanh(0.5 * self.x @ torch.randn(16, 4, generator=g)).argmax(-1)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return i, self.x[i], self.y[i]

data = Data()
torch.manual_seed(0)
if args.healthy:
    loader = DataLoader(data, batch_size=8, shuffle=True)
else:
    sampler = DistributedSampler(data, num_replicas=accelerator.num_processes, rank=accelerator.process_index, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
model, opt, loader = accelerator.prepare(model, opt, loader)
seen = set()
for epoch in range(2):
    for index, x, y in loader:
        if epoch == 0:
            seen.update(index.tolist())
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        accelerator.backward(loss)
        opt.step()
    accelerator.print(f"epoch {epoch}: {len(loader)} batches, loss {loss.item():.4f}")
every = set(gather_object(sorted(seen)))
accelerator.print(f"samples that any rank saw in epoch 0: {len(every)} of {len(data)}")
accelerator.wait_for_everyone()
accelerator.end_training()
