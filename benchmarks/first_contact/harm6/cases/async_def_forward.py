"""Modules whose forward is async: the call gives a coroutine, branches run interleaved by asyncio.gather and TaskGroup, an async generator yields parts, semaphores, a cancelled branch; gradients, order of lines, and no coroutine left unawaited."""
import asyncio, gc
# PRELUDE
log = []


class Branch(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, self.a, self.b = k, nn.Linear(8, 8), nn.Linear(8, 8)

    async def forward(self, x):
        log.append(("begin", self.k))
        h = torch.tanh(self.a(x))
        for _ in range(self.k):
            await asyncio.sleep(0)
        log.append(("middle", self.k))
        h = self.b(h)
        await asyncio.sleep(0)
        log.append(("end", self.k))
        return h


class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    async def forward(self, x):
        for k in range(3):
            x = torch.relu(self.fc(x))
            yield x
            await asyncio.sleep(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.branches = nn.ModuleList(Branch(k) for k in range(3))
        self.stream, self.head = Stream(), nn.Linear(8, 4)

    async def forward(self, x):
        parts = await asyncio.gather(*(b(x) for b in self.branches))
        async for p in self.stream(sum(parts)):
            parts.append(p)
        return self.head(sum(parts))


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.02)


async def step(s):
    x, y = batch(s)
    opt.zero_grad()
    call = m(x)
    assert asyncio.iscoroutine(call)
    out = await call
    loss = F.mse_loss(out, y)
    loss.backward()
    opt.step()
    return loss.item().hex()


async def main():
    for s in range(5):
        print(s, await step(s), M(m), H(log), log[:9] if s == 0 else len(log))
    async with asyncio.TaskGroup() as tg:
        ts = [tg.create_task(m(batch(20 + k)[0])) for k in range(2)]
    print([H(t.result().detach()) for t in ts])
    (ts[0].result().sum() + ts[1].result().sum()).backward()
    t = asyncio.create_task(m(batch(9)[0]))
    await asyncio.sleep(0)
    t.cancel()
    try:
        await t
    except asyncio.CancelledError as e:
        print("cancelled", e.args, M(m))
    c = m(batch(9)[0])
    c.close()
    agen = m.stream(batch(1)[0])
    first = await agen.__anext__()
    await agen.aclose()
    print(H(first.detach()), await step(30), M(m))


asyncio.run(main())
gc.collect()
print(len(log), H(log), R())
