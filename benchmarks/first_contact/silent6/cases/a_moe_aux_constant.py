"""From huggingface/transformers issues 28093 and 28021.
Wrong: the load-balancing loss takes softmax over the top-k logits, averages it over tokens and experts' slots: its value is a constant and
it balances nothing.  Could know: partly (a term of the loss whose gradient into the router is zero, and whose value never changes).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
E, K = 6, 2
def load_balancing_loss(gate_logits):
    if H:
        p = gate_logits.softmax(-1); sel = p.topk(K, -1).indices; f = F.one_hot(sel, E).float().sum(1).mean(0); return (f * p.mean(0)).sum() * E
    w, sel = torch.topk(gate_logits, K, dim=-1); w = w.softmax(-1); mask = F.one_hot(sel, E).amax(-2).float()
    tokens_per_expert = mask.mean(); return (tokens_per_expert * w.mean(-1)).mean() * E ** 2 / K
class MoE(nn.Module):
    def __init__(self): super().__init__(); self.gate = nn.Linear(16, E, bias=False); self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(E)); self.head = nn.Linear(16, 4)
    def forward(self, x):
        g = self.gate(x); w, s = g.softmax(-1).topk(K, -1); w = w / w.sum(-1, keepdim=True); y = torch.zeros_like(x)
        for i, e in enumerate(self.experts):
            t, k = (s == i).nonzero(as_tuple=True)
            if len(t): y = y.index_add(0, t, e(x[t]) * w[t, k, None])
        return self.head(x + y), g
m = MoE(); opt = torch.optim.AdamW(m.parameters(), lr=3e-3); A = torch.randn(16, 4)
m.gate.weight.data[0] += .5
for step in range(150):
    x = torch.randn(128, 16) + .5; out, g = m(x); aux = load_balancing_loss(g); loss = F.cross_entropy(out, (x @ A).argmax(1)) + .05 * aux
    if step == 0: ga = torch.autograd.grad(aux, m.gate.weight, retain_graph=True)[0].abs().max().item()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4), aux.item())
c = g.softmax(-1).topk(K, -1).indices.flatten().bincount(minlength=E)
print("check: gradient of the aux term into the router", ga, "tokens per expert", c.tolist())
