"""OPT in pure float16: the feed-forward's second product leaves float16's range.
Source: huggingface/transformers#17433 / #17437 (OPT nan in half), #5651 (the same in T5)."""
import sys
import torch
from transformers import OPTConfig, OPTForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = OPTForCausalLM(OPTConfig(vocab_size=50, hidden_size=16, word_embed_proj_dim=16, ffn_dim=64, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32, dropout=0.0))
model = model.to(torch.bfloat16 if CURED else torch.float16)
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(4):
    if step == 2:
        with torch.no_grad():  # an outlier channel, as trained checkpoints have
            layer = model.model.decoder.layers[1]
            layer.fc1.weight[:8] = 40.0
            layer.fc1.bias[:8] = 300.0
            layer.fc2.weight[3, :8] = 60.0
    ids = torch.randint(50, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
