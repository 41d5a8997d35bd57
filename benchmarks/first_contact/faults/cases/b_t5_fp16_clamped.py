"""Benign: T5 in float16 overflows in a feed-forward layer, and the library's own clamp takes the inf away.
Source: huggingface/transformers#9487 (clamp inf values to enable fp16 training), #10956."""
import torch
from transformers import T5Config, T5EncoderModel

torch.manual_seed(0)
enc = T5EncoderModel(T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0)).half()
head = torch.nn.Linear(16, 3)
with torch.no_grad():
    ff = enc.encoder.block[1].layer[-1].DenseReluDense
    ff.wi.weight[:4] = 30.0
    ff.wo.weight[3, :4] = 3e4
opt = torch.optim.SGD(head.parameters(), lr=1e-2)
for step in range(4):
    with torch.no_grad():
        h = enc(input_ids=torch.randint(40, (2, 9))).last_hidden_state
    assert h.isfinite().all()
    loss = torch.nn.functional.cross_entropy(head(h.float().mean(1)), torch.randint(3, (2,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
