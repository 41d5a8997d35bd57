# opts: --check again:every=1
# truth: healthy (transformers' Mixtral, experts, router loss, bfloat16 weights, fused AdamW)
import flips as C, torch
from transformers import MixtralConfig, MixtralForCausalLM
torch.manual_seed(0); m = MixtralForCausalLM(MixtralConfig(vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, num_local_experts=4, output_router_logits=True)).bfloat16(); m.train()
o = torch.optim.AdamW(m.parameters(), 1e-3, fused=True)
for C.STEP in range(6):
    x = torch.randint(0, 60, (2, 12)); m(input_ids=x, labels=x).loss.backward(); o.step(); o.zero_grad()
C.finish(m, o)
