# opts: --check again:every=1
# truth: no hardware; another thread of the script scales a weight by numpy (Hogwild by hand) while forward runs (layer 2.weight changes at the ReLU of one step in two)
# source: pytorch/examples mnist_hogwild, Hogwild! (Niu et al. 2011)
import flips as C, torch, threading
from torch import nn
class Act(nn.Module):
    def forward(s, x):
        if C.FAULT and C.STEP % 2 and torch.is_grad_enabled() and C.os.getpid() == C.PID: go.set(); done.wait(5); done.clear()
        return x.relu()
go, done = threading.Event(), threading.Event()
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), Act(), nn.Linear(32, 1)); w = m[2].weight.detach().numpy()
def other():
    while True:
        go.wait(); go.clear(); w[:] *= 1.01; done.set()
threading.Thread(target=other, daemon=True).start(); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
