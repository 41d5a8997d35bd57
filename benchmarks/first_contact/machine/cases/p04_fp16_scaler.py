# opts: --check precision:at=1,2,3,5
# truth: healthy twin of p03: the same with GradScaler (2**14)
# source: pytorch AMP recipe
# modes: wf
import flips as C, torch, blocks, ptruth
from torch import nn
import torch.nn.functional as F
from blocks import GPT
torch.manual_seed(0)
m = GPT(); o = torch.optim.AdamW(m.parameters(), 1e-3); t = ptruth.Truth(m); DT, K = torch.float16, 3e-6; S = torch.amp.GradScaler("cpu", init_scale=2.0**26)
for C.STEP in range(9):
    i = torch.randint(0, 50, (8, 17)); t.before(i[:, :-1])
    with torch.autocast("cpu", DT): y = m(i[:, :-1])
    y.retain_grad(); l = F.cross_entropy(y.float().flatten(0, 1), i[:, 1:].flatten()) * K
    S.scale(l).backward()
    if C.STEP in (1, 2, 3, 5): t.after(y.grad, C.STEP)
    S.step(o); S.update(); o.zero_grad()
C.finish(m)
