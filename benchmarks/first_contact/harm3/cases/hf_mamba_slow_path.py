"""Mamba from a tiny configuration in its sequential (slow) path: a Python loop over time in each mixer, cached generation token by token; weights, tokens."""
# PRELUDE
from transformers import MambaConfig, MambaForCausalLM

m = MambaForCausalLM(MambaConfig(vocab_size=40, hidden_size=12, state_size=4, num_hidden_layers=2, expand=2, conv_kernel=3, use_mambapy=False))
W(m)
opt = torch.optim.AdamW(m.parameters(), lr=2e-3)
for s in range(3):
    x = torch.randint(0, 40, (2, 24), generator=torch.Generator().manual_seed(s))
    loss = m(input_ids=x, labels=x).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex())
m.eval()
print(m.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=True, pad_token_id=0).tolist(), M(m), R())
