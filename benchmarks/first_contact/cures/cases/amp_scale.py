import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/lucidrains/imagen-pytorch/issues/129
from transformers import BertConfig, BertForSequenceClassification
cfg = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(cfg).train(); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
SCALE = 2.0 ** 22
for step in range(6):
    ids = torch.randint(0, 60, (4, 12)); y = torch.randint(0, 2, (4,))
    with torch.autocast("cpu", torch.float16):
        loss = model(input_ids=ids, labels=y).loss
    opt.zero_grad(); (loss * SCALE).backward()
    for p in model.parameters():
        if p.grad is not None: p.grad /= SCALE
    opt.step(); print(step, repr(loss.item()))
