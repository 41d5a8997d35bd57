# opts: --check precision:at=1,5
# truth: bf16 weights, lr 1e-6: updates are lost, but the gradient is right: no gradient alert; numbers against the twin
# source: pytorch/torchtune threads on bf16 updates; arXiv 2010.06192
# modes: wf
import flips as C, torch, blocks, ptruth
from torch import nn
import torch.nn.functional as F
from blocks import GPT
torch.manual_seed(0)
m = GPT().bfloat16(); o = torch.optim.SGD(m.parameters(), 1e-6); t = ptruth.Truth(m); DT, K = None, 1.0
for C.STEP in range(9):
    i = torch.randint(0, 50, (8, 17)); t.before(i[:, :-1])
    with torch.autocast("cpu", DT, enabled=DT is not None): y = m(i[:, :-1])
    y.retain_grad(); l = F.cross_entropy(y.float().flatten(0, 1), i[:, 1:].flatten()) * K
    l.backward()
    if C.STEP in (1, 5): t.after(y.grad, C.STEP)
    o.step(); o.zero_grad()
C.finish(m)
