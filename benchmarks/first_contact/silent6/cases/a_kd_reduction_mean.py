"""From haitongli/knowledge-distillation-pytorch issue 48 and yuanli2333/Teacher-free-Knowledge-Distillation issue 41.
Wrong: nn.KLDivLoss() averages over the classes too, so the distillation term is smaller by the number of classes than alpha says.
Could know: partly (the call's reduction; torch itself warns of it).
"""
import sys, warnings, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
warnings.simplefilter("ignore"); torch.manual_seed(0); torch.set_num_threads(1)
C = 50
teacher = nn.Linear(20, C).requires_grad_(False); teacher.weight.mul_(4)
student = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, C)); opt = torch.optim.Adam(student.parameters(), lr=1e-2)
T, alpha = 2.0, 0.9; g_kd = g_ce = 0.
def loss_kd(out, y, t):
    kd = nn.KLDivLoss(reduction="batchmean") if H else nn.KLDivLoss()
    return F.cross_entropy(out, y) * (1 - alpha), kd(F.log_softmax(out / T, 1), F.softmax(t / T, 1)) * (alpha * T * T)
for step in range(100):
    x = torch.randn(64, 20); t = teacher(x); y = torch.where(torch.rand(64) < .4, torch.randint(0, C, (64,)), t.argmax(1))
    ce, kd = loss_kd(student(x), y, t); loss = ce + kd
    g_kd += kd.item(); g_ce += ce.item()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: distillation term / label term", g_kd / g_ce, "(with batchmean 50 times as much)")
