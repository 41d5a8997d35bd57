"""A child process that streams data by a pipe to the training (Popen, communicate, poll, SIGPIPE of the child), zombies reaped.

Source: https://github.com/pytorch/pytorch/issues/41197
"""
# PRELUDE
import subprocess
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
p = subprocess.Popen([sys.executable, "-c", "import sys\nfor i in range(100000):\n print(i * 0.001, flush=True)"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
for s in range(5):
    v = float(p.stdout.readline()); x, y = batch(s); loss = F.mse_loss(m(x + v), y); opt.zero_grad(); loss.backward(); opt.step(); print(v, float(loss.detach()).hex())
p.stdout.close(); print(p.wait()); print(subprocess.run(["sh", "-c", "cat; exit 3"], input="hello", capture_output=True, text=True), M(m))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError as e: print("no children left")
