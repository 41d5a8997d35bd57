"""Mixtral with an own balance loss: entropy of the experts' load, log of an expert that got no token.
Source: Own: entropy of an idle expert's load."""
import sys
import torch
from transformers import MixtralConfig, MixtralForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
cfg = MixtralConfig(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=1, output_router_logits=True, router_aux_loss_coef=0.0)
model = MixtralForCausalLM(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)


def balance(router_logits, step):
    total = 0.0
    for logits in router_logits:
        prob = logits.softmax(-1)
        load = prob.mean(0)
        if step == 2:
            load = load * torch.tensor([1.0, 1.0, 1.0, 0.0])  # an expert is switched off for pruning
        if CURED:
            load = load + 1e-9
        total = total + (load * torch.log(load)).sum()  # FAULT
    return total


for step in range(4):
    ids = torch.randint(60, (2, 10))
    out = model(input_ids=ids, labels=ids)
    loss = out.loss + 0.01 * balance(out.router_logits, step)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
