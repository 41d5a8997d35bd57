import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# Teacher-free-Knowledge-Distillation 41: nn.KLDivLoss() averages over the classes too
import warnings

warnings.filterwarnings("ignore")
teacher = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 50)).eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 50))
opt = torch.optim.Adam(student.parameters(), lr=2e-3)
T, alpha = 4.0, 0.9
kl = nn.KLDivLoss(reduction="batchmean") if HEALTHY else nn.KLDivLoss()
for step in range(150):
    x = torch.randn(64, 16)
    with torch.no_grad():
        tl = teacher(x) * 4
    y = tl.argmax(1)
    out = student(x)
    loss = (1 - alpha) * F.cross_entropy(out, y) + alpha * T * T * kl(F.log_softmax(out / T, 1), F.softmax(tl / T, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(student)
