"""DoRA on a layer with a row of zeros: magnitude / weight_norm is 0/0.
Source: huggingface/peft#2049."""
import sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
base = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32))
with torch.no_grad():
    base.gpt_neox.layers[1].attention.dense.weight[5] = 1e-3 if CURED else 0.0  # a pruned row
model = get_peft_model(base, LoraConfig(r=2, use_dora=True, target_modules=["dense"], task_type="CAUSAL_LM"))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(3):
    ids = torch.randint(50, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
