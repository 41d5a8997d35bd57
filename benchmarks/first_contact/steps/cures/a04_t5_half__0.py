import numscope
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import T5Config, T5ForConditionalGeneration

config = T5Config(vocab_size=50, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, dropout_rate=0.0, feed_forward_proj="gated-gelu", decoder_start_token_id=0)
model = T5ForConditionalGeneration(config)
with torch.no_grad():
    model.encoder.block[1].layer[1].DenseReluDense.wi_1.weight.mul_(2e3)
    model.encoder.block[1].layer[1].DenseReluDense.wi_0.weight.mul_(2e2)
    model.encoder.block[1].layer[1].DenseReluDense.wo.weight.mul_(1e-2)
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
numscope.high_precision(model.encoder.block[1].layer[1].DenseReluDense)
for step in range(6):
    ids = torch.randint(1, 50, (4, 12))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
