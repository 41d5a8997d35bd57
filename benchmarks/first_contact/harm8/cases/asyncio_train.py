# what: two trainings as asyncio tasks that interleave between forward, backward and step, with contextvars and a thread executor for evaluation
# benign: yes
# PRELUDE
import asyncio, contextvars
var = contextvars.ContextVar("v", default=0)
def ev(m): return m(batch(40)[0]).detach()
async def run(k):
    var.set(k); m = net(k); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1); out = []; loop = asyncio.get_running_loop()
    for s in range(5):
        x, y = batch(10 * k + s); opt.zero_grad(); o = m(x); await asyncio.sleep(0); l = F.mse_loss(o, y); await asyncio.sleep(0); l.backward(); await asyncio.sleep(0); opt.step(); out.append(float(l.detach()).hex())
        z = await loop.run_in_executor(None, ev, m); out.append((z * float("inf") * 0).isnan().all().item())
    return out, M(m), var.get()
async def main(): return await asyncio.gather(run(1), run(2))
for r in asyncio.run(main()): print(r)
print(R())
