"""Healthy. Source: huggingface/peft, LoRA on a frozen base (tiny Llama)
"""
# CHECK float64
import hashlib
import math
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
x = torch.randint(0, 64, (4, 2, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(4):
    loss = model(input_ids=x[step], labels=x[step]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
