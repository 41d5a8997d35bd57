"""sys.exit and _thread.interrupt_main in threads while the main thread trains.

Source: https://github.com/wandb/wandb/issues/7590
"""
# PRELUDE
import threading, _thread, time
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
t = threading.Thread(target=lambda: sys.exit(7)); t.start(); t.join(); print("still here", train(m, opt, 2))
k = net(1); o = torch.optim.SGD(k.parameters(), 1e-4); go = threading.Event()
def intr(): go.wait(); _thread.interrupt_main()
threading.Thread(target=intr).start()
try:
    go.set()
    for s in range(100000): train(k, o, 1, s % 7)
    print("missed")
except KeyboardInterrupt: print("interrupted")
print(train(m, opt, 2), M(m), torch.is_grad_enabled())
