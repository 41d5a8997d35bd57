import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# peft 2898, unsloth 9331: tokens are added, the adapter leaves the embedding frozen: the new rows stay as they were drawn
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

cfg = GPT2Config(vocab_size=40, n_positions=24, n_embd=32, n_layer=2, n_head=2, pad_token_id=0, eos_token_id=1, bos_token_id=1)
model = GPT2LMHeadModel(cfg)
model.resize_token_embeddings(44)
more = {"modules_to_save": ["wte", "lm_head"]} if HEALTHY else {}
model = get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True, **more))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
for step in range(60):
    ids = torch.randint(2, 40, (8, 20))
    ids[:, ::4] = 40 + torch.randint(4, (8, 1))  # the new tokens
    ids[:, 1::4] = ids[:, ::4] - 30
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(step, loss.item())
report(model)
