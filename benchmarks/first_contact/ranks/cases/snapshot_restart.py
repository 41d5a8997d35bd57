# torchrun --max-restarts 1: rank 1 fails in epoch 2 of the first try; the second starts from rank 0's snapshot
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo"); r = dist.get_rank(); attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.manual_seed(0)
ds = TensorDataset(torch.randn(64, 8), torch.randn(64, 4)); sampler = DistributedSampler(ds); loader = DataLoader(ds, 8, sampler=sampler)
net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.05); first = 0
if os.path.exists("snapshot.pt"):
    s = torch.load("snapshot.pt"); net.load_state_dict(s["m"]); first = s["e"] + 1
    say("rank", r, "resumes at", first)
ddp = DDP(net)
for epoch in range(first, 5):
    sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        opt.zero_grad(); loss = F.mse_loss(ddp(x), y); loss.backward()
        if attempt == 0 and r == 1 and epoch == 2 and i == 1:
            raise RuntimeError("lost a GPU")
        opt.step()
    if r == 0:
        torch.save({"m": net.state_dict(), "e": epoch}, "snapshot.tmp"); os.rename("snapshot.tmp", "snapshot.pt")
    dist.barrier()
    if attempt or epoch < 2: say("rank", r, "attempt", attempt, "epoch", epoch, loss.item(), digest(net.state_dict()))
dist.destroy_process_group()
