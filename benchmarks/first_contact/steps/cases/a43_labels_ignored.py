import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import DistilBertConfig, DistilBertForTokenClassification

config = DistilBertConfig(vocab_size=50, dim=32, n_layers=1, n_heads=2, hidden_dim=64, num_labels=3, dropout=0.0, attention_dropout=0.0)
model = DistilBertForTokenClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(1, 50, (4, 8))
    labels = torch.randint(0, 3, (4, 8))
    if step == 2:
        labels[:] = -100
    loss = model(input_ids=ids, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
