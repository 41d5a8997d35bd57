"""Benign: sampling with top-k and top-p (-inf logits) in a rollout, then a policy-gradient step on the samples.
Source: transformers' TopKLogitsWarper (filter_value -inf)."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=24, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=49, pad_token_id=49))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    prompt = torch.randint(1, 48, (3, 4))
    model.eval()
    with torch.no_grad():
        ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=5, top_p=0.9, max_new_tokens=6, min_new_tokens=6)
    model.train()
    logp = model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    reward = (ids % 2).float().mean(1)
    loss = -((reward - reward.mean())[:, None] * logp[:, 3:]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
