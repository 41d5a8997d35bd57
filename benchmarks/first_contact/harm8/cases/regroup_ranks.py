# what: 2 ranks: process group destroyed and made again between phases; rank 1 leaves after phase 2, rank 0 trains on alone; harmless nan in rank 0
# benign: yes
# ranks: 2
# PRELUDE
import torch.distributed as dist
r = int(os.environ["RANK"]); model = net(); W(model); out = []
for ph in range(2):
    dist.init_process_group("gloo"); ddp = nn.parallel.DistributedDataParallel(model); opt = torch.optim.SGD(model.parameters(), lr=.05)
    for s in range(4): x, y = batch(100 * ph + 10 * s + r); opt.zero_grad(); l = F.mse_loss(ddp(x), y); l.backward(); opt.step(); out.append(float(l.detach()).hex())
    dist.barrier(); dist.destroy_process_group(); del ddp
if r == 0:
    out.append(train(model, torch.optim.SGD(model.parameters(), lr=.01), 5))
    with torch.no_grad(): z = model(batch(0)[0]); out.append((z.std(0, correction=6) * 0).isnan().sum().item())
open(f"rank{r}.txt", "w").write(f"{out} {M(model)} {R()}")
