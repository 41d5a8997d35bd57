#: what: SLURM-like preemption: SIGUSR2 sent by a timer thread's os.kill at given steps, the handler sets a flag, checkpoint at the step's end, SIGTERM handler restored, training resumed
#: source: https://chicago-aiscience.github.io/checkpointing
# PRELUDE
import signal, threading
flag = {"n": 0, "who": []}
def on(sig, frame): flag["n"] += 1; flag["who"].append((signal.Signals(sig).name, frame is not None))
old = {s: signal.signal(s, on) for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)}
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
for s in range(20):
    x = torch.randn(8, 4)
    if s in (3, 9, 15): os.kill(os.getpid(), {3: signal.SIGUSR1, 9: signal.SIGUSR2, 15: signal.SIGTERM}[s])
    l = F.cross_entropy(m(x), (x[:, 0] > 0).long()); opt.zero_grad(); l.backward(); opt.step()
    if flag["n"]: torch.save({"m": m.state_dict(), "s": s}, f"ck{s}.pt"); print("checkpoint", s, flag["who"]); flag["n"] = 0; m.load_state_dict(torch.load(f"ck{s}.pt")["m"])
print([old[k] == signal.SIG_DFL for k in old], signal.getsignal(signal.SIGTERM) is on, sorted(t.name for t in threading.enumerate())); show(m, opt)
