"""NVIDIA/apex#93, huggingface/peft (adapters through float16 files): a LoRA weight written by hand through half() becomes inf
TRUTH op=aten._to_copy reason=overflow of the dtype|bad parameter"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from transformers import LlamaConfig, LlamaForCausalLM
from peft import LoraConfig, get_peft_model
net = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2))
net = get_peft_model(net, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-3)
for step in range(3):
    if step == 1:        # resume the adapter from a file in float16
        with torch.no_grad():
            for n, p in net.named_parameters():
                if "lora_A" in n:
                    saved = p * (1e6 if "v_proj" in n and not CURED else 1.0)
                    p.copy_(saved.half().float())  # FAULT
    ids = torch.randint(0, 64, (2, 10)); loss = net(input_ids=ids, labels=ids).loss; opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
