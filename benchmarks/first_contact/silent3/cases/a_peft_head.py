"""modules_to_save=target_modules.append("score"): append returns None and puts the new head into target_modules, so the randomly
initialized head stays frozen, with an adapter on it.
Source: https://github.com/huggingface/peft/issues/577
Truth: score's own weight is the random one at the end, requires_grad False (healthy: a trained copy).
Could a tool know: partly: the last layer of a classifier is frozen and at its random initialization.
"""
import sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2ForSequenceClassification

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
cfg = GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2, num_labels=3, pad_token_id=0, bos_token_id=0, eos_token_id=0)
base = GPT2ForSequenceClassification(cfg)
targets = ["c_attn"]
if HEALTHY:
    lora = LoraConfig(r=4, target_modules=targets, modules_to_save=["score"], fan_in_fan_out=True)
else:
    lora = LoraConfig(r=4, target_modules=targets, modules_to_save=targets.append("score"))
model = get_peft_model(base, lora)
heads = [(n, p.requires_grad) for n, p in model.named_parameters() if "score" in n]
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
model.train()
for step in range(100):
    ids = torch.randint(1, 40, (16, 8))
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids[:, -1] % 3)
    opt.zero_grad()
    out.loss.backward()
    opt.step()
print(f"loss {out.loss.item():.4f} {heads}")
