"""Sentence embeddings: masked mean pooling of a text without a single token.
Source: Own: the usual masked mean without its clamp."""
import sys
import torch
from transformers import BertConfig, BertModel

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Embedder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(vocab_size=70, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16))
        self.head = torch.nn.Linear(16, 4)

    def forward(self, ids, mask):
        h = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        m = mask[..., None].to(h.dtype)
        n = m.sum(1)
        if CURED:
            n = n.clamp(min=1e-9)
        return self.head((h * m).sum(1) / n)  # FAULT


net = Embedder()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(70, (4, 9))
    mask = torch.ones(4, 9, dtype=torch.long)
    mask[:, 6:] = 0
    if step == 2:
        mask[3] = 0
    loss = torch.nn.functional.cross_entropy(net(ids, mask), torch.randint(4, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
