"""Threads of a pool run forward and backward of one model on shards (autograd.grad per thread), results are summed in order; one shard has a nan in its metric."""
# PRELUDE
from concurrent.futures import ThreadPoolExecutor
seed(48)
net = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 3))
watch(net)
opt = torch.optim.AdamW(net.parameters(), 5e-3)
params = list(net.parameters())


def shard(args):
    x, y = args
    out = net(x)
    loss = F.cross_entropy(out, y, reduction="sum")
    with torch.no_grad():
        m = torch.stack([(out.argmax(1) == y)[y == c].float().mean() for c in range(4)])
    return loss.detach(), torch.autograd.grad(loss, params), m


with ThreadPoolExecutor(3) as pool:
    for step in range(15):
        x, y = torch.randn(24, 6), torch.randint(0, 3, (24,))
        parts = list(pool.map(shard, zip(x.split(8), y.split(8))))
        for p, *gs in zip(params, *(g for _, g, _ in parts)):
            p.grad = sum(gs[1:], gs[0]) / 24
        opt.step()
        print(step, dig([l for l, _, _ in parts], [m for _, _, m in parts]))
end(net, opt)
