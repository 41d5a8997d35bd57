# source: Switch Transformer / Mixtral float16 router threads: router logits overflow in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import MixtralConfig, MixtralForCausalLM
model = MixtralForCausalLM(MixtralConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=32))
with torch.no_grad():
    for name, p in model.named_parameters():
        if name.endswith("layers.1.mlp.gate.weight") or name.endswith("layers.1.block_sparse_moe.gate.weight"):
            p.mul_(2e6)
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(9):
    x = torch.randint(0, 40, (3, 8))
    # BATCH 0: x
    loss = model(input_ids=x, labels=x).loss
    opt.zero_grad(); loss.backward(); opt.step()
