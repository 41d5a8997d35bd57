"""GRPO: sampled generations with the model in training, group advantages, clipped ratio with several inner updates, KL to a reference."""
# PRELUDE
import copy
from transformers import LlamaConfig, LlamaForCausalLM
cfg = LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, bos_token_id=1, eos_token_id=2, pad_token_id=0)
m = LlamaForCausalLM(cfg)
ref = copy.deepcopy(m).eval()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-3)
def lp(model, ids):
    return torch.log_softmax(model(ids).logits[:, 3:-1], -1).gather(2, ids[:, 4:, None]).squeeze(-1)
for it in range(3):
    prompt = torch.randint(3, 24, (2, 4)).repeat_interleave(4, 0)
    m.eval()
    with torch.no_grad():
        ids = m.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=6, min_new_tokens=6, temperature=0.9, top_k=12)
        m.train()
        old, rl = lp(m, ids), lp(ref, ids)
    reward = (ids[:, 4:] % 2 == 0).float().mean(1)
    g = reward.view(2, 4)
    adv = ((g - g.mean(1, keepdim=True)) / (g.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    for mu in range(2):
        new = lp(m, ids)
        ratio = (new - old).exp()
        kl = (rl - new).exp() - (rl - new) - 1
        loss = (-torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) + 0.04 * kl).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        opt.step()
    print(it, H(ids), float(loss).hex(), float(reward.mean()))
print(M(m), R())
