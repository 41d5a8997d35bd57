"""GRPO on a tiny GPT-2: rewards are standardized per group of samples; a group whose rewards are all equal.
Source: areal-project/AReaL#303 (group-level std), Z. Shao et al., arXiv 2402.03300; TRL adds 1e-4 below."""
import sys, math
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(49)
EPS = 1e-4 if "--cured" in sys.argv else 0.0
GROUP = 4

config = GPT2Config(vocab_size=40, n_positions=24, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=39, pad_token_id=39)
policy = GPT2LMHeadModel(config)
reference = GPT2LMHeadModel(config)
reference.load_state_dict(policy.state_dict())
reference.requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)


@torch.no_grad()
def rollout(prompts, n=8):
    ids = prompts
    for _ in range(n):
        ids = torch.cat([ids, torch.multinomial(policy(ids).logits[:, -1].softmax(-1), 1)], 1)
    return ids


def logprobs(model, ids):
    return model(ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)


losses = []
for step in range(7):
    prompts = torch.randint(1, 38, (3, 4)).repeat_interleave(GROUP, 0)
    ids = rollout(prompts)
    reward = (ids[:, 4:] % 2 == 0).float().mean(1) + 0.01 * torch.rand(len(ids))
    if step == 6:
        reward[4:8] = 0.0  # the checker timed out for this prompt
    grouped = reward.view(-1, GROUP)
    adv = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + EPS)  # FAULT
    adv = adv.flatten()[:, None]
    lp, ref = logprobs(policy, ids)[:, 3:], logprobs(reference, ids)[:, 3:]
    kl = torch.exp(ref - lp) - (ref - lp) - 1
    loss = -(torch.exp(lp - lp.detach()) * adv - 0.04 * kl).mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in policy.parameters()))
