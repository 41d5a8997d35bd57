"""From OpenRLHF/OpenRLHF issue 973 (also verl-project/verl pull 3287).
Wrong: loss_mask[prompt_len:-1] is cut again by [:, :-1] though the log-probs are those of the next tokens: the answer's first token is
never in the loss.  Could know: no (the mask is plausible; only its meaning is wrong).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
V, P, A = 20, 5, 4
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 32); self.pos = nn.Embedding(16, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True); self.head = nn.Linear(32, V)
    def forward(self, ids):
        n = ids.shape[1]; m = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        return self.head(self.layer(self.emb(ids) + self.pos(torch.arange(n)), src_mask=m))
def batch(n=64):
    p = torch.randint(0, V - 2, (n, P)); first = (p[:, :1] + 1) % (V - 2)
    ans = torch.cat([first] + [(first + i) % (V - 2) for i in range(1, A - 1)] + [torch.full((n, 1), V - 1)], 1)
    return torch.cat([p, ans], 1)
model = LM(); opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    ids = batch(); logits = model(ids)
    logp = F.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    mask = torch.zeros(ids.shape); mask[:, (P - 1 if H else P):-1] = 1
    mask = mask[:, :-1]
    loss = -(logp * mask).sum() / mask.sum()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
with torch.no_grad():
    ids = batch(256); pred = model(ids)[:, P - 1].argmax(-1)
    print("check: accuracy of the answer's first token", (pred == ids[:, P]).float().mean().item())
