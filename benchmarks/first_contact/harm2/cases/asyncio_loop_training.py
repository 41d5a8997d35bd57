"""Training in coroutines, to_thread and an executor, with context variables, cancellation and a timeout; debug mode.

Source: https://github.com/python/cpython/pull/20143
"""
# PRELUDE
import asyncio, contextvars
v = contextvars.ContextVar("v", default=0)
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); lock = None
async def step(s):
    async with lock:
        v.set(s); r = await asyncio.to_thread(train, m, opt, 1, s); return s, r, v.get()
async def forever():
    try:
        while True: await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        print("cancelled"); raise
async def main():
    global lock
    lock = asyncio.Lock(); t = asyncio.create_task(forever())
    for s in range(4): print(await step(s))
    t.cancel()
    try:
        await t
    except asyncio.CancelledError: pass
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.05)
    except TimeoutError: print("timeout")
    def fail(): raise OSError("in executor")
    try:
        await asyncio.get_running_loop().run_in_executor(None, fail)
    except OSError as e: print(e)
    print(train(m, opt, 2), v.get(), len(asyncio.all_tasks()))
asyncio.run(main(), debug=True); print(M(m))
