import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import BertConfig, BertModel

config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
model = BertModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(1, 50, (8, 10))
    keep = torch.ones(8, 10, dtype=torch.bool)
    keep[:, 8:] = False
    if step == 2:
        keep[3] = False
    if step == 2: ids = ids[[i for i in range(len(ids)) if i not in (3,)]]; keep = keep[[i for i in range(len(keep)) if i not in (3,)]]
    mask = torch.zeros(len(ids), 1, 10, 10).masked_fill(~keep[:, None, None, :], float("-inf"))
    loss = model(ids, attention_mask=mask).last_hidden_state.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
