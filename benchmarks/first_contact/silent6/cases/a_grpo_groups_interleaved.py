"""From PrimeIntellect-ai/prime-rl pull 600.
Wrong: prompts are repeated as [p1, p2, p1, p2], advantages are normalized over consecutive blocks: a group mixes prompts.
Could know: no.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
P, G, V, L = 8, 8, 12, 4
class Policy(nn.Module):
    def __init__(self): super().__init__(); self.p = nn.Embedding(40, 32); self.t = nn.Embedding(V + 1, 32); self.rnn = nn.GRUCell(32, 32); self.o = nn.Linear(32, V)
    def forward(self, prompt, toks=None):
        h = self.p(prompt); x = torch.full_like(prompt, V); lps, out = [], []
        for i in range(L):
            h = self.rnn(self.t(x), h); lp = F.log_softmax(self.o(h), -1); x = torch.multinomial(lp.detach().exp(), 1).squeeze(1) if toks is None else toks[:, i]
            lps.append(lp.gather(1, x[:, None]).squeeze(1)); out.append(x)
        return torch.stack(out, 1), torch.stack(lps, 1)
pol = Policy(); opt = torch.optim.AdamW(pol.parameters(), lr=3e-3); mixed = 0
for step in range(120):
    problems = torch.randperm(40)[:P]; ids = problems.repeat_interleave(G) if H else problems.repeat(G)
    with torch.no_grad(): toks, old = pol(ids)
    reward = (toks == (ids % V)[:, None]).float().mean(1) + (ids >= 20).float() * 2
    g = reward.view(-1, G); adv = ((g - g.mean(1, keepdim=True)) / (g.std(1, keepdim=True) + 1e-4)).view(-1); mixed += (ids.view(-1, G) != ids.view(-1, G)[:, :1]).any(1).sum().item()
    _, lp = pol(ids, toks); r = (lp - old).exp(); loss = -torch.min(r * adv[:, None], r.clamp(.8, 1.2) * adv[:, None]).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, loss.item(), round((reward - (ids >= 20).float() * 2).mean().item(), 4))
print("check: groups of several prompts", mixed, "of", 120 * P)
