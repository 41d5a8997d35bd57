"""Checkpoints are written by a forked child; the script reaps with os.waitpid(-1) and expects exactly its children; later SIGCHLD is ignored."""
# PRELUDE
import signal
seed(40)
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 2))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
forked = reaped = 0
torch.set_num_threads(1)
for step in range(14):
    if step == 10:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 3 == 0 and step < 10:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            with open(f"ck{step}.bin", "wb") as f:
                f.write(net[0].weight.detach().numpy().tobytes())
            os._exit(step)
        forked += 1
    with torch.no_grad():
        net(x / 0) if step % 2 else net(x)
    if step % 3 == 0 and step < 10:
        p, s = os.waitpid(-1, 0)
        reaped += p == pid and os.waitstatus_to_exitcode(s) == step
        try:
            os.waitpid(-1, os.WNOHANG)
            print("another child")
        except ChildProcessError:
            pass
    print(step, dig(loss), forked, reaped)
print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)
end(net, opt)
