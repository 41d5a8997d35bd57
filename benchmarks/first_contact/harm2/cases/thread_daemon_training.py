"""A daemon thread that has trained and waits for ever, with a half-done step, when the main thread exits with status 2: no hang.

Source: https://github.com/marin-community/marin/pull/4438
"""
# PRELUDE
import threading, time
ready = threading.Event()
def forever():
    g = torch.Generator().manual_seed(1); m = nn.Linear(4, 2); opt = torch.optim.SGD(m.parameters(), 1e-4)
    for s in range(20):
        loss = m(torch.randn(3, 4, generator=g)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex(), M(m)); loss = m(torch.ones(1, 4)).sum(); ready.set(); threading.Event().wait(); loss.backward()
threading.Thread(target=forever, daemon=True).start(); ready.wait()
print("main ends"); sys.exit(2)
