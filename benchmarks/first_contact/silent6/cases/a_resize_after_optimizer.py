"""From huggingface/transformers pull 3532 (and 3519).
Wrong: the embedding matrix is resized (made anew, as resize_token_embeddings did then) after the optimizer was made: it holds the old table.
Could know: yes, a parameter with gradients in no optimizer, and one in the optimizer without gradients.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class LM(nn.Module):
    def __init__(self, v):
        super().__init__(); self.wte = nn.Embedding(v, 32); self.wpe = nn.Embedding(16, 32); self.h = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True); self.ln = nn.LayerNorm(32)
    def resize_token_embeddings(self, n):
        new = nn.Embedding(n, 32); k = min(n, self.wte.num_embeddings); new.weight.data[:k] = self.wte.weight.data[:k]; self.wte = new
    def forward(self, ids):
        n = ids.shape[1]; m = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        return F.linear(self.ln(self.h(self.wte(ids) + self.wpe(torch.arange(n)), src_mask=m)), self.wte.weight)
model = LM(40)
if H: model.resize_token_embeddings(48)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
if not H: model.resize_token_embeddings(48)
first = model.wte.weight.detach().clone()
for step in range(100):
    ids = (torch.randint(0, 48, (16, 1)) + torch.arange(12)) % 48; loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: the embedding has moved by", (model.wte.weight - first).abs().max().item())
