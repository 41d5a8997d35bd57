# opts: --check again:every=1
# truth: no hardware; a thread of the script's own writes 2.weight (numpy view) in odd steps after its forward and before its backward: 1's input gradient is of other weights
# source: pytorch/examples mnist_hogwild
import flips as C, torch, threading
from torch import nn
class After(nn.Module):
    def forward(s, x):
        if C.FAULT and C.STEP % 2 and torch.is_grad_enabled() and C.os.getpid() == C.PID: go.set(); done.wait(5); done.clear()
        return x * 1.0
go, done = threading.Event(), threading.Event()
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1), After()); w = m[2].weight.detach().numpy()
def other():
    while True:
        go.wait(); go.clear(); w[:] *= 1.01; done.set()
threading.Thread(target=other, daemon=True).start(); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
