"""DistributedSampler with worker processes on 2 ranks, SyncBatchNorm replaced by plain, metrics reduced; order of samples on each rank.

Source: https://github.com/pytorch/pytorch/issues/1355
"""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); ds = TensorDataset(torch.randn(16, 8), torch.randn(16, 4)); sa = DistributedSampler(ds, seed=1); dl = DataLoader(ds, 4, sampler=sa, num_workers=1)
m = DDP(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))); opt = torch.optim.SGD(m.parameters(), 0.1); f = open(f"r{r}.txt", "w")
for e in range(2):
    sa.set_epoch(e); t = torch.zeros(1)
    for x, y in dl: loss = F.mse_loss(m(x), y); opt.zero_grad(); loss.backward(); opt.step(); t += loss.detach(); print(H(x), float(loss.detach()).hex(), file=f)
    dist.all_reduce(t); print(t.item().hex(), file=f)
print(M(m), R(), file=f); f.close(); dist.destroy_process_group()
