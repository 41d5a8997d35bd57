import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/huggingface/transformers/issues/14189
from transformers import T5Config, T5ForConditionalGeneration
cfg = T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, dropout_rate=0.1, feed_forward_proj="gated-gelu")
model = T5ForConditionalGeneration(cfg).train()
with torch.no_grad():
    model.encoder.block[0].layer[1].DenseReluDense.wi_0.weight *= 30
    model.encoder.block[0].layer[1].DenseReluDense.wi_1.weight *= 30
    model.encoder.block[0].layer[1].DenseReluDense.wo.weight *= 300
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    ids = torch.randint(2, 100, (4, 12)); labels = torch.randint(2, 100, (4, 6))
    with torch.autocast("cpu", torch.float16):
        loss = model(input_ids=ids, labels=labels).loss
    opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
    print(step, repr(loss.item()), scaler.get_scale())
