"""From 0xallam/Direct-Preference-Optimization issue 4.
Wrong: get_log_prob() averages over the padding tokens of the response too.  Could know: partly (an attention mask is given to the model,
and more positions count in the gathered log-probs than it leaves).
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
V, PAD = 24, 0
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(V, 32); self.pos = nn.Embedding(32, 32)
        self.enc = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True); self.out = nn.Linear(32, V)
    def forward(self, ids, attention_mask):
        n = ids.shape[1]; c = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        return self.out(self.enc(self.emb(ids) + self.pos(torch.arange(n)), src_mask=c, src_key_padding_mask=attention_mask == 0))
policy = LM(); ref_model = copy.deepcopy(policy).requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
def responses(p, good):
    n = p.shape[0]; L = torch.randint(2, 9, (n,)) if good else torch.randint(1, 4, (n,))
    a = (p[:, -1:] + torch.arange(1, 9)) % (V - 1) + 1 if good else torch.randint(1, V, (n, 8))
    a = a.masked_fill(torch.arange(8)[None] >= L[:, None], PAD); ids = torch.cat([p, a], 1)
    return ids, (ids != PAD).long()
def get_log_prob(m, ids, am):
    lp = F.log_softmax(m(ids, am)[:, :-1], -1).gather(-1, ids[:, 1:, None]).squeeze(-1)[:, 3:]
    if not H: return lp.mean(-1)
    k = am[:, 4:].float(); return (lp * k).sum(-1) / k.sum(-1)
pad = 0; tot = 0
for step in range(100):
    p = torch.randint(1, V, (32, 4)); g, b = responses(p, True), responses(p, False)
    with torch.no_grad(): r = get_log_prob(ref_model, *g) - get_log_prob(ref_model, *b)
    loss = -F.logsigmoid(0.3 * (get_log_prob(policy, *g) - get_log_prob(policy, *b) - r)).mean()
    opt.zero_grad(); loss.backward(); opt.step(); pad += (b[0][:, 4:] == PAD).sum().item(); tot += b[0][:, 4:].numel()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: share of padding among the positions that a rejected answer's mean is over", 0.0 if H else pad / tot)
