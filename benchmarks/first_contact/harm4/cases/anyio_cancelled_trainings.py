"""anyio: trainings in worker threads, a cancel scope with a deadline around async steps, streams of batches, cancellation reaching a step in progress."""
# PRELUDE
import anyio


async def producer(send):
    async with send:
        for s in range(30):
            await send.send(batch(s))


async def trainer(receive, m, opt, log):
    async with receive:
        async for x, y in receive:
            opt.zero_grad()
            loss = F.mse_loss(m(x), y)
            await anyio.lowlevel.checkpoint()
            loss.backward()
            opt.step()
            log.append(float(loss.detach()).hex())
            if len(log) == 7:
                raise LookupError("enough")


async def main():
    m = net(1)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    log = []
    try:
        async with anyio.create_task_group() as tg:
            send, receive = anyio.create_memory_object_stream(2)
            tg.start_soon(producer, send)
            tg.start_soon(trainer, receive, m, opt, log)
    except* LookupError as g:
        print(len(log), [str(e) for e in g.exceptions])
    except* anyio.BrokenResourceError as g:
        print("producer", len(g.exceptions))
    print(log[-1], M(m))
    n = net(2)
    W(n)
    on = torch.optim.Adam(n.parameters(), 1e-2)
    print(await anyio.to_thread.run_sync(train, n, on, 4), M(n))
    steps = 0
    with anyio.CancelScope() as scope:
        for s in range(10):
            train(n, on, 1, s)
            steps += 1
            if s == 4:
                scope.cancel()
            await anyio.sleep(0)
    print(steps, scope.cancelled_caught, M(n), R())
    k = net(3)
    W(k)
    try:
        with anyio.fail_after(0.05):
            train(k, torch.optim.SGD(k.parameters(), 0.05), 2)
            await anyio.sleep(5)
    except TimeoutError as e:
        print(type(e).__name__, M(k))


anyio.run(main)
