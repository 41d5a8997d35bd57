# what: SIGUSR1/SIGTERM handlers ask for a checkpoint (os.kill to itself), itimer alarms counted, SIGTERM ends with status 0 after saving
# PRELUDE
import signal, time
want = []
signal.signal(signal.SIGUSR1, lambda s, f: want.append(s)); signal.signal(signal.SIGTERM, lambda s, f: want.append("term")); ticks = []
signal.signal(signal.SIGALRM, lambda s, f: ticks.append(1)); signal.setitimer(signal.ITIMER_REAL, .002, .002)
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
for s in range(200):
    x, y = batch(s % 7); opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward()
    if s in (50, 120): os.kill(os.getpid(), signal.SIGUSR1)
    if s == 180: os.kill(os.getpid(), signal.SIGTERM)
    opt.step()
    while want:
        w = want.pop(); torch.save(model.state_dict(), f"ck{s}.pt"); print(s, w, float(l.detach()).hex())
        if w == "term": signal.setitimer(signal.ITIMER_REAL, 0); print(len(ticks) > 0, M(model), R(), signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL); sys.exit(0)
