"""UKPLab/sentence-transformers (mean pooling, clamp left out): an empty sentence has no token; DistilBERT
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from transformers import DistilBertConfig, DistilBertModel
bert = DistilBertModel(DistilBertConfig(vocab_size=50, dim=32, hidden_dim=64, n_layers=1, n_heads=2, max_position_embeddings=16)); opt = torch.optim.AdamW(bert.parameters(), 1e-3)
def embed(ids, mask):
    h = bert(input_ids=ids, attention_mask=mask).last_hidden_state; m = mask[..., None].float()
    n = m.sum(1).clamp(min=1e-9) if CURED else m.sum(1)
    return (h * m).sum(1) / n  # FAULT
for step in range(3):
    ids = torch.randint(0, 50, (4, 8)); mask = torch.ones(4, 8, dtype=torch.long)
    if step == 1: mask[2] = 0
    z = F.normalize(embed(ids, mask), dim=1); loss = F.cross_entropy(z @ z.T / 0.1, torch.arange(4)); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), bert)
