# source: UKPLab/sentence-transformers mean pooling without clamp(min=1e-9)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import BertConfig, BertModel
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32), add_pooling_layer=False)
        self.head = nn.Linear(16, 3)
    def forward(self, ids, mask, labels):
        h = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        m = mask.unsqueeze(-1).float()
        pooled = (h * m).sum(1) / m.sum(1)
        return F.cross_entropy(self.head(pooled), labels)
model = Encoder()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    ids, labels = torch.randint(1, 50, (8, 6)), torch.randint(0, 3, (8,))
    mask = torch.ones_like(ids)
    if step == 2:
        mask[5] = 0
    # BATCH 0: ids, mask, labels
    loss = model(ids, mask, labels)
    opt.zero_grad(); loss.backward(); opt.step()
