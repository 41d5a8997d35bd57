"""The script kills itself by SIGKILL in mid-step after writing two checkpoints (a spot instance): death by that signal, exactly the files it wrote."""
# PRELUDE
import signal

m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    print(train(m, opt, 1, first=s), flush=True)
    torch.save(m.state_dict(), f"ck{s % 2}.pt")
x, t = batch(9)
F.mse_loss(m(x), t).backward()
os.kill(os.getpid(), signal.SIGKILL)
