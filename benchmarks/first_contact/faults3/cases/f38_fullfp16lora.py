"""LoRA adapters trained wholly in float16 with AdamW's default epsilon: A's gradient is zero while B is.
Source: kohya-ss/sd-scripts#1914 ("full_fp16 ... Adamw was not able to learn. (nan)"), Lightning-AI/lit-llama#294."""
import sys, math
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.set_num_threads(1)
torch.manual_seed(38)
EPS = 1e-4 if "--cured" in sys.argv else 1e-8

config = Qwen2Config(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
base = Qwen2ForCausalLM(config).half()
model = get_peft_model(base, LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]), autocast_adapter_dtype=False)
trainable = [p for p in model.parameters() if p.requires_grad]
for p in trainable:
    p.data = p.data.half()
opt = torch.optim.AdamW(trainable, lr=1e-4, eps=EPS, foreach=False)
losses = []
for step in range(8):
    ids = torch.randint(0, 96, (4, 16))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()  # FAULT
    opt.zero_grad()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
