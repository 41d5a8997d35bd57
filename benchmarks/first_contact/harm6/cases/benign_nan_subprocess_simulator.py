"""A forward calls an external simulator (subprocess, os.system, os.popen) that keeps its own state in a file; a harmless nan in evaluation."""
import subprocess
# PRELUDE
open("sim.sh", "w").write("echo step $1 >> sim.log; wc -l < sim.log\n")


class Simulated(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.counts = []

    def forward(self, x, log=False):
        n = int(subprocess.run(["sh", "sim.sh", "a"], capture_output=True, text=True).stdout)
        if log:
            os.system("echo system >> system.log")
            with os.popen("echo popen >> system.log; wc -l < system.log") as p:
                n = n, int(p.read())
        self.counts.append(n)
        y = self.body(x)
        return y.sqrt() if log else y


m = Simulated()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(3):
    print(train(m, opt, 2, 2 * k))
    with torch.no_grad():
        print(int(m(batch(20 + k)[0], True).isnan().sum()), m.counts[-1])
print(m.counts, open("sim.log").read().count("\n"), open("system.log").read().split(), M(m))
