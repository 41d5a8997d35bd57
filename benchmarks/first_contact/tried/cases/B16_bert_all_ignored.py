# source: huggingface/transformers MLM threads: every label is -100, the mean is 0/0; no sample alone
# planted rows: none alone
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import BertConfig, BertForMaskedLM
model = BertForMaskedLM(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    ids = torch.randint(1, 50, (6, 8))
    labels = torch.where(torch.rand(6, 8) < 0.5, ids, -100)
    if step == 2:
        labels[:] = -100
    # BATCH 0: ids, labels
    loss = model(input_ids=ids, labels=labels).loss
    opt.zero_grad(); loss.backward(); opt.step()
