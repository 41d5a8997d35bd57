"""Saved tensors go to disk (the tutorial's SelfDeletingTempFile) for the larger ones; packs and unpacks are counted; mutation of saved tensors is allowed elsewhere."""
# PRELUDE
import itertools
seed(32)
n, alive, counts = itertools.count(), set(), {"pack": 0, "unpack": 0}
os.makedirs("spill", exist_ok=True)


class TempFile:
    def __init__(self):
        self.name = f"spill/{next(n)}.pt"
        alive.add(self.name)

    def __del__(self):
        os.remove(self.name)
        alive.discard(self.name)


def pack(t):
    counts["pack"] += 1
    if t.numel() < 100 or isinstance(t, nn.Parameter):
        return t
    f = TempFile()
    torch.save(t, f.name)
    return f


def unpack(v):
    counts["unpack"] += 1
    return v if isinstance(v, torch.Tensor) else torch.load(v.name)


net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 2))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(12):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = F.cross_entropy(net(x), y)
    held = len(os.listdir("spill"))
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss), counts, held, len(alive), len(os.listdir("spill")))
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        h = net[0](x)
        s = h.sigmoid()
        t = s * s
        s.mul_(0.5)
        t.sum().backward()
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        l2 = net(x).square().mean()
        l2.backward()
    print(dig(net[0].weight.grad, l2))
    opt.step()
with torch.autograd.graph.save_on_cpu():
    net(x).sum().backward()
del loss, l2, h, s, t
print(sorted(os.listdir("spill")))
end(net, opt)
