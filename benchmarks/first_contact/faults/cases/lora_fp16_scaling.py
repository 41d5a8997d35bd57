"""LoRA on a float16 base with a huge alpha: the scaled update overflows float16 after a few steps of a too large learning rate.
Source: huggingface/peft#3073, oobabooga/textgen#1270 (alpha 908), cloneofsimo/lora#208."""
import sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import PhiConfig, PhiForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
base = PhiForCausalLM(PhiConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32, resid_pdrop=0.0)).half()
model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8 if CURED else 908, target_modules=["fc2"], task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3 if CURED else 300.0)
for step in range(6):
    ids = torch.randint(50, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
