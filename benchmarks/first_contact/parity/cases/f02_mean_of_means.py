from tiny import *
# https://github.com/ml-explore/mlx-lm/pull/1413, unsloth.ai/blog/gradient: each micro-batch's own token mean, / K
from transformers import LlamaConfig, LlamaForCausalLM
accum = 4 if B else 1
model = LlamaForCausalLM(LlamaConfig(vocab_size=V, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches(ragged=True):
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        (ce(model(input_ids=a, use_cache=False).logits, b) / accum).backward()
    opt.step(); opt.zero_grad()
