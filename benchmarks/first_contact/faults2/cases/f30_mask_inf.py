"""NVIDIA/apex#93 (masks by multiplication): (1 - mask) * -inf is 0 * inf where the mask is one
TRUTH op=aten.mul reason=0 * inf"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from transformers import BertConfig, BertModel
class Pool(nn.Module):
    def __init__(self, d):
        super().__init__(); self.q = nn.Linear(d, 1)
    def forward(self, h, mask):
        neg = -1e4 if CURED else float("-inf")
        s = self.q(h).squeeze(-1) + (1.0 - mask) * neg  # FAULT
        return (s.softmax(-1)[..., None] * h).sum(1)
bert = BertModel(BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32)); pool = Pool(32); clf = nn.Linear(32, 2)
opt = torch.optim.AdamW([*bert.parameters(), *pool.parameters(), *clf.parameters()], 1e-3)
for step in range(2):
    ids = torch.randint(0, 60, (4, 12)); mask = torch.ones(4, 12); mask[0, 8:] = 0
    loss = F.cross_entropy(clf(pool(bert(ids, attention_mask=mask).last_hidden_state, mask)), torch.tensor([0, 1, 0, 1])); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), bert, pool, clf)
