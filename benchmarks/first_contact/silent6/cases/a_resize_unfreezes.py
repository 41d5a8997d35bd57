"""From huggingface/transformers issue 26861.
Wrong: the embeddings are frozen and then resized; the new table has requires_grad=True and is trained (here a resize as it was then).
Could know: partly (a module whose parameters were frozen has trainable ones; only if the freeze is seen).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Enc(nn.Module):
    def __init__(self):
        super().__init__(); self.word_embeddings = nn.Embedding(30, 32); self.rnn = nn.LSTM(32, 32, batch_first=True); self.cls = nn.Linear(32, 2)
    def resize(self, n):
        old = self.word_embeddings; new = nn.Embedding(n, 32)
        new.weight.data[:old.num_embeddings] = old.weight.data
        if H: new.weight.requires_grad = old.weight.requires_grad
        self.word_embeddings = new
    def forward(self, x): return self.cls(self.rnn(self.word_embeddings(x))[0][:, -1])
m = Enc(); m.word_embeddings.weight.requires_grad = False; m.resize(34); w0 = m.word_embeddings.weight.detach().clone()
opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=3e-3)
for step in range(100):
    x = torch.randint(0, 30, (64, 10)); loss = F.cross_entropy(m(x), (x[:, -1] > 14).long()); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: change of the embeddings that were frozen", (m.word_embeddings.weight - w0).abs().max().item())
