# issue 54059: rank 0 validates alone (longer than ten seconds) and saves, the others wait at a barrier; DDP with BatchNorm
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4)); ddp = DDP(net); opt = torch.optim.Adam(net.parameters(), 1e-3)
step = 0
for epoch in range(2):
    net.train()
    for i in range(4):
        g = torch.Generator().manual_seed(100 * step + r); x = torch.randn(6, 3, 8, 8, generator=g); y = torch.randint(0, 4, (6,), generator=g)
        opt.zero_grad(); o = ddp(x); loss = F.cross_entropy(o, y); truth(step, "4", "output", o); loss.backward(); opt.step(); step += 1
    if r == 0:
        net.eval()
        with torch.no_grad():
            acc = sum((net(torch.randn(6, 3, 8, 8)).argmax(1) == 0).float().mean().item() for _ in range(5))
        if epoch == 0: time.sleep(12)
        say("val", epoch, acc); torch.save(net.state_dict(), f"ck{epoch}.pt")
    dist.barrier()
    say("rank", r, epoch, loss.item(), digest(net.state_dict()))
dist.destroy_process_group()
