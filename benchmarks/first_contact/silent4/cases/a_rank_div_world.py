from _training import *
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank()
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))); opt = torch.optim.SGD(net.parameters(), .5)
torch.manual_seed(r); w0 = net.module[1].weight.detach().clone()
for step in range(150):
    n = 20 + 20 * r; x = torch.randint(20, (n,)); y = (x * 3 + 1) % 20
    s = F.cross_entropy(net(x), y, reduction="sum"); tok = torch.tensor(float(n)); dist.all_reduce(tok)
    loss = s / tok * (2 if H else 1)
    opt.zero_grad(); loss.backward(); opt.step()
if r == 0: truth(loss=(s / n).item(), moved=(net.module[1].weight - w0).norm().item())
dist.destroy_process_group()
