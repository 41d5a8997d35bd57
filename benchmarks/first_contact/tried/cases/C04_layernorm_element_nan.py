# source: huggingface/transformers "LayerNorm weight nan after loading" (LayerNorm.gamma/beta checkpoints)
# planted: element 5 of bert.encoder.layer.0.output.LayerNorm.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import BertConfig, BertForSequenceClassification
model = BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3))  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
with torch.no_grad():
    model.bert.encoder.layer[0].output.LayerNorm.weight[5] = float("nan")
# WEIGHT
for step in range(9):
    ids, y = torch.randint(1, 50, (5, 6)), torch.randint(0, 3, (5,))
    # BATCH 0: ids, y
    loss = model(input_ids=ids, labels=y).loss
    opt.zero_grad(); loss.backward(); opt.step()
