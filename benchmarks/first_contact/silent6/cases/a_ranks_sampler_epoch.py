"""From kan-bayashi/ParallelWaveGAN issue 177 (also huggingface/transformers issue 4398).
Wrong: set_epoch is not called on the DistributedSampler: each epoch has the order of the first.
Could know: yes, batches come in the order of the epoch before.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.utils.data import TensorDataset, DataLoader, DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R = dist.get_rank(); torch.set_num_threads(1); torch.manual_seed(0)
X = torch.randn(320, 1, 32); Y = X.flip(2) * .5; ds = TensorDataset(X, Y); sampler = DistributedSampler(ds, shuffle=True); loader = DataLoader(ds, 8, sampler=sampler)
g = DDP(nn.Sequential(nn.Conv1d(1, 16, 31, padding=15), nn.Tanh(), nn.Conv1d(16, 1, 31, padding=15))); opt = torch.optim.RAdam(g.parameters(), 2e-3); firsts = []
for epoch in range(7):                          # 20 steps each
    if H: sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        if i == 0: firsts.append(round(x.sum().item(), 4))
        loss = F.l1_loss(g(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if R == 0: print(epoch, round(loss.item(), 4), flush=True)
if R == 0: print("check: different first batches", len(set(firsts)), "of", len(firsts), flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
