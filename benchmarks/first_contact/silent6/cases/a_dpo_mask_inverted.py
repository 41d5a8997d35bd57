"""From QwenAudio/CosyVoice issue 1449.
Wrong: the DPO mask is (target == IGNORE), so the log-probs of the ignored prompt positions (index 0) are summed and those of the answer are
dropped; the mean is over all positions too.  Could know: partly (the labels that count are those that were filled in for ignore_index).
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
V, IGN = 24, -1
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(V, 32); self.rnn = nn.GRU(32, 48, batch_first=True); self.out = nn.Linear(48, V)
    def forward(self, x): return self.out(self.rnn(self.emb(x))[0])
policy = LM(); ref = copy.deepcopy(policy).requires_grad_(False).eval()
opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
def pair(n=32):
    p = torch.randint(1, V, (n, 4)); good = (p[:, -1:] + torch.arange(1, 5)) % V; bad = torch.randint(0, V, (n, 4))
    def mk(a):
        ids = torch.cat([p, a], 1); t = ids[:, 1:].clone(); t[:, :3] = IGN
        return ids[:, :-1], t
    return mk(good), mk(bad)
def logps(m, ids, t):
    mask = (t != IGN) if H else (t == IGN)
    lp = F.log_softmax(m(ids), -1).gather(-1, t.masked_fill(t == IGN, 0).unsqueeze(-1)).squeeze(-1)
    return (lp * mask).sum(-1) / mask.sum(-1) if H else (lp * mask).mean(-1)
for step in range(120):
    (gi, gt), (bi, bt) = pair()
    with torch.no_grad(): rg, rb = logps(ref, gi, gt), logps(ref, bi, bt)
    margin = (logps(policy, gi, gt) - rg) - (logps(policy, bi, bt) - rb)
    loss = -F.logsigmoid(0.5 * margin).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
with torch.no_grad():
    (gi, gt), (bi, bt) = pair(256)
    f = lambda i, t: (F.log_softmax(policy(i), -1).gather(-1, t.clamp(min=0)[..., None]).squeeze(-1) * (t != IGN)).sum(-1)
    print("check: share of pairs with the good answer above the bad one", (f(gi, gt) > f(bi, bt)).float().mean().item())
