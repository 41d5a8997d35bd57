# opts: --check precision:at=1,5
# truth: bf16 autocast, block 1 has queries times 60: largest logit in b.1.a; computed from q, k here (scaled, causal)
# source: arXiv 2309.14322 (attention logit growth), 2302.05442 (ViT-22B)
# modes: wf wh
import flips as C, torch, blocks, ptruth
from torch import nn
import torch.nn.functional as F
from blocks import GPT
torch.manual_seed(0)
m = GPT(gains=(1.0, 60.0 if C.FAULT else 1.0)); o = torch.optim.AdamW(m.parameters(), 1e-3); t = ptruth.Truth(m); DT, K = torch.bfloat16, 1.0
for C.STEP in range(7):
    i = torch.randint(0, 50, (8, 17)); t.before(i[:, :-1])
    blocks.LOG = [] if C.STEP in (1, 5) and C.os.getpid() == C.PID else None
    with torch.autocast("cpu", DT): y = m(i[:, :-1])
    if blocks.LOG: print("TRUTH step", C.STEP, "largest logit, largest |logit| of each block", blocks.LOG)
    blocks.LOG = None
    y.retain_grad(); F.cross_entropy(y.float().flatten(0, 1), i[:, 1:].flatten()).backward()
    if C.STEP in (1, 5): t.after(y.grad, C.STEP)
    o.step(); o.zero_grad()
C.finish(m)
