# KempnerInstitute/KempnerForge#51: the loader's place within the epoch is not saved; a resume replays the epoch's first batches
import hashlib, os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class Docs(Dataset):
    def __init__(self): self.t = torch.randint(0, 20, (96, 13), generator=torch.Generator().manual_seed(7))
    def __len__(self): return len(self.t)
    def __getitem__(self, i): return {"input_ids": self.t[i, :-1], "labels": self.t[i, 1:]}
class EpochSampler(Sampler):
    def __init__(self, n): self.n, self.epoch, self.skip = n, 0, 0
    def __iter__(self):
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch)).tolist(); order, self.skip = order[self.skip:], 0
        return iter(order)
    def __len__(self): return self.n
torch.manual_seed(6); docs = Docs(); sampler = EpochSampler(96); loader = DataLoader(docs, batch_size=8, sampler=sampler)
model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 20)); opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
step = epoch = batch_idx = 0
if os.path.exists("ckpt/meta.pt"):
    m = torch.load("ckpt/meta.pt"); model.load_state_dict(torch.load("ckpt/model.pt")); opt.load_state_dict(torch.load("ckpt/optim.pt")); step, epoch, batch_idx = m["step"], m["epoch"], m["batch"]
    if fault: batch_idx = 0
done = False
while not done:
    sampler.epoch, sampler.skip = epoch, batch_idx * 8
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()); loss.backward(); opt.step(); opt.zero_grad()
        step += 1; batch_idx += 1; print(step, repr(loss.item()), flush=True)
        if step % 5 == 0:
            os.makedirs("ckpt", exist_ok=True); torch.save(model.state_dict(), "ckpt/model.pt"); torch.save(opt.state_dict(), "ckpt/optim.pt"); torch.save({"step": step, "epoch": epoch, "batch": batch_idx}, "ckpt/meta.pt")
        if step >= stop: done = True; break
    else: epoch, batch_idx = epoch + 1, 0
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
