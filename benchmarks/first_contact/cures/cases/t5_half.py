import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/huggingface/transformers/issues/5651
from transformers import T5Config, T5ForConditionalGeneration
cfg = T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, dropout_rate=0.0)
model = T5ForConditionalGeneration(cfg)
with torch.no_grad():
    model.encoder.block[1].layer[1].DenseReluDense.wi.weight *= 60
    model.encoder.block[1].layer[1].DenseReluDense.wo.weight *= 6000
model = model.half().train()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(8):
    ids = torch.randint(2, 100, (4, 12)); labels = torch.randint(2, 100, (4, 6))
    loss = model(input_ids=ids, labels=labels).loss
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
