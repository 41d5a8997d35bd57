# gradient accumulation with no_sync under bfloat16 autocast; micro-batches without a valid label are left out on all ranks together (all_reduce MIN)
from fcutil import *
import contextlib
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(8, 16, 5); ddp = DDP(net); opt = torch.optim.AdamW(net.parameters(), 1e-2); sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
for step in range(6):
    opt.zero_grad(); done = 0
    for mb in range(4):
        g = torch.Generator().manual_seed(100 * step + 10 * mb + r); x = torch.randn(6, 8, generator=g); y = torch.randint(0, 5, (6,), generator=g)
        if (step + mb + r) % 7 == 0: y = torch.full((6,), -100)
        ok = torch.tensor([int((y >= 0).any())]); dist.all_reduce(ok, op=dist.ReduceOp.MIN)
        if not ok.item() and mb != 3: continue
        with ddp.no_sync() if mb < 3 else contextlib.nullcontext():
            with torch.autocast("cpu", torch.bfloat16): o = ddp(x)
            loss = F.cross_entropy(o.float(), y, reduction="sum") / 24; loss.backward(); done += 1
    truth(step, "fc2", "wgrad", net.fc2.weight.grad, "copy")
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0); opt.step(); sched.step()
    say("rank", r, step, done, loss.item(), digest(net.state_dict()))
dist.destroy_process_group()
