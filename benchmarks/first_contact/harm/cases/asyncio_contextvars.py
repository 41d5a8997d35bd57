"""Training in coroutines, in asyncio.to_thread, in an executor, with context variables read inside forward; cancellation in mid-step.

source: temporalio/sdk-python#146 (cancelled work), python docs contextvars
"""
import asyncio
import contextvars
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(76)
who = contextvars.ContextVar("who", default="nobody")
SEEN = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        SEEN.append(who.get())
        who.set(who.get() + "!")
        return self.body(x)


a, b = Net(), Net()
watch(a)
watch(b)


async def fit(name, net, steps):
    who.set(name)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    said = []
    for i in range(steps):
        x = torch.full((3, 8), float(i))
        loss = net(x).square().mean()
        await asyncio.sleep(0)
        opt.zero_grad()
        loss.backward()
        await asyncio.sleep(0)
        opt.step()
        said.append(loss.item().hex())
    return said, who.get()


async def main():
    say(await asyncio.gather(fit("a", a, 4), fit("b", b, 4)))
    say(await asyncio.to_thread(train, a, torch.optim.SGD(a.parameters(), 0.1), 2))
    task = asyncio.create_task(fit("c", b, 100))
    for i in range(5):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        say("cancelled", sha(weights(b)), who.get())
    ctx = contextvars.copy_context()
    say(ctx.run(lambda: (who.set("inner"), train(a, torch.optim.SGD(a.parameters(), 0.1), 1), who.get())[1:]), who.get(), len(list(ctx)))


asyncio.run(main())
say(SEEN, sha(weights(a), weights(b)), rng())
