"""forward is a generator (deep supervision, layer-wise training): it yields a loss per stage, which the loop consumes; and one is async."""
# PRELUDE
import asyncio
seed(12)
log = []


class Stages(nn.Module):
    def __init__(self):
        super().__init__()
        self.s = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.h = nn.ModuleList(nn.Linear(8, 2) for _ in range(4))

    def forward(self, x, y):
        for i, (s, h) in enumerate(zip(self.s, self.h)):
            log.append(i)
            x = s(x).relu()
            yield F.cross_entropy(h(x), y)
            x = x.detach()


class Async(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 2)

    async def forward(self, x):
        await asyncio.sleep(0)
        log.append("a")
        return self.l(x)


net, other = Stages(), Async()
watch(net); watch(other)
opt = torch.optim.SGD(list(net.parameters()) + list(other.parameters()), 0.1)


async def both(x):
    return await asyncio.gather(other(x), other(x * 2))


for step in range(12):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    opt.zero_grad()
    gen = net(x, y)
    print(type(gen).__name__, len(log))
    for i, loss in enumerate(gen):
        loss.backward()
        if step % 4 == 3 and i == 2:
            gen.close()
            break
    a, b = asyncio.run(both(x))
    F.cross_entropy(a + b, y).backward()
    opt.step()
    print(step, dig(loss, a), len(log))
end(net, opt); end(other)
