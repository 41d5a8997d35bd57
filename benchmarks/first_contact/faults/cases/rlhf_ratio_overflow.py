"""PPO on a language model: exp of a log-ratio overflows for a sequence that the old policy found impossible.
Source: THUDM/slime#2198, openai/baselines#142."""
import sys
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
policy = GPTNeoForCausalLM(GPTNeoConfig(vocab_size=40, hidden_size=16, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=2, max_position_embeddings=32, window_size=8))
opt = torch.optim.AdamW(policy.parameters(), lr=1e-4)


def logprobs(ids):
    logits = policy(input_ids=ids).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)


def ppo_loss(new, old, adv):
    log_ratio = new - old
    if CURED:
        log_ratio = log_ratio.clamp(-20, 20)
    ratio = torch.exp(log_ratio)  # FAULT
    kl3 = ratio - log_ratio - 1
    return (-torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) + 0.1 * kl3).mean()


for step in range(4):
    ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        old = logprobs(ids)
    if step == 2:
        old[1, 4] = -120.0  # another engine's log-probability
    loss = ppo_loss(logprobs(ids), old, torch.randn(2, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
