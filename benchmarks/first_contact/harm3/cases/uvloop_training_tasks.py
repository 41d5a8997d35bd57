"""uvloop as the event loop: two tasks train alternately, run_in_executor, a signal handler of the loop (add_signal_handler), subprocess and a timeout; results and handlers afterwards."""
# PRELUDE
import asyncio
import signal

import uvloop

got = []


async def go(k):
    m = net(k)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    for s in range(4):
        l = train(m, opt, 1, first=s)
        await asyncio.sleep(0)
    return l, M(m)


async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, got.append, "term")
    r = await asyncio.gather(go(1), go(2))
    os.kill(os.getpid(), signal.SIGTERM)
    p = await asyncio.create_subprocess_exec("/bin/echo", "hi", stdout=asyncio.subprocess.PIPE)
    r.append(await p.stdout.read())
    await p.wait()
    await asyncio.sleep(0.05)
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.05)
    except asyncio.TimeoutError:
        r.append("timeout")
    r.append(await loop.run_in_executor(None, lambda: go_sync(3)))
    loop.remove_signal_handler(signal.SIGTERM)
    return r


def go_sync(k):
    m = net(k)
    W(m)
    return train(m, torch.optim.SGD(m.parameters(), 0.05), 3), M(m)


print(uvloop.run(main()), got, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
