"""torchrun as a launcher of two independent trainings: ranks that never make a process group, with different models, numbers of steps and ends."""
# PRELUDE
import time

r = int(os.environ["RANK"])
m = net(r, h=16 + 4 * r)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
lines = [train(m, opt, 1, s) for s in range(4 + 5 * r)]
with open(f"rank{r}.txt", "w") as f:
    f.write(f"{lines} {M(m)} {R()}\n")
if r == 1:
    time.sleep(1)
    print("the last", flush=True)
