"""From microsoft/ProDA issue 20.
Wrong: F.kl_div gets the student's softmax instead of its log_softmax.  Could know: yes, by the first argument of kl_div in the graph.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def net(w): return nn.Sequential(nn.Conv2d(3, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, 5, 1))
teacher = net(16).requires_grad_(False).eval()
for p in teacher.parameters(): p.mul_(3)
student = net(8); opt = torch.optim.Adam(student.parameters(), lr=1e-2)
for step in range(120):
    x = torch.randn(8, 3, 10, 10)
    with torch.no_grad(): t = F.softmax(teacher(x), 1)
    out = student(x); s = F.log_softmax(out, 1) if H else F.softmax(out, 1)
    loss = F.kl_div(s, t, reduction="none").sum(1).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): x = torch.randn(64, 3, 10, 10); print("check: agreement with the teacher", (student(x).argmax(1) == teacher(x).argmax(1)).float().mean().item())
