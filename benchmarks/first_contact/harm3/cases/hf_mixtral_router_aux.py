"""Mixtral from a tiny configuration: batches of three tokens for five experts (fused expert weights), jitter, router's auxiliary loss, labels with -100; weights and which experts had gradients."""
# PRELUDE
from transformers import MixtralConfig, MixtralForCausalLM

m = MixtralForCausalLM(MixtralConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, num_local_experts=5, num_experts_per_tok=2, output_router_logits=True, router_jitter_noise=0.05))
W(m)
opt = torch.optim.AdamW(m.parameters(), lr=2e-3)
for s in range(4):
    x = torch.randint(0, 40, (1, 3), generator=torch.Generator().manual_seed(s))
    out = m(input_ids=x, labels=torch.where(x % 5 == 0, -100, x), output_router_logits=True)
    opt.zero_grad()
    out.loss.backward()
    used = [n for n, p in m.named_parameters() if p.grad is None or not p.grad.any()]
    opt.step()
    print(s, out.loss.item().hex(), out.aux_loss.item().hex(), len(used), H(list(out.router_logits)))
print(M(m), R())
