from _training import *
class LM(nn.Module):
    def __init__(s):
        super().__init__(); s.e = nn.Embedding(20, 32); s.g = nn.GRU(32, 64, batch_first=True); s.o = nn.Linear(64, 20)
    def forward(s, x): return s.o(s.g(s.e(x))[0])
def logp(m, x): return m(x[:, :-1]).log_softmax(-1).gather(-1, x[:, 1:, None]).squeeze(-1).sum(-1)
policy = LM()
ref_model = copy.deepcopy(policy) if H else policy
start = copy.deepcopy(policy)
opt = torch.optim.AdamW(policy.parameters(), 1e-3); beta = .1
for step in range(200):
    p = torch.randint(20, (16, 1)); ch = (p + torch.arange(8)) % 20; rj = (p + 3 * torch.arange(8)) % 20
    with torch.no_grad(): rc, rr = logp(ref_model, ch), logp(ref_model, rj)
    z = beta * ((logp(policy, ch) - rc) - (logp(policy, rj) - rr))
    loss = -F.logsigmoid(z).mean(); opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): truth(loss=loss.item(), drift_of_rejected=(logp(policy, rj) - logp(start, rj)).mean().item())
