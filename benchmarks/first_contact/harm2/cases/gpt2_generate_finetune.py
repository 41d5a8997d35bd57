"""GPT-2 from a tiny configuration: training steps, then generate with sampling and a cache; weights, tokens and random states.

Source: https://github.com/huggingface/transformers (examples/pytorch/language-modeling; the family)
"""
# PRELUDE
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
m = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=32))
W(m)
opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
for s in range(4):
    ids = torch.randint(0, 50, (2, 12))
    out = m(ids, labels=ids)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    print(s, float(out.loss.detach()).hex(), type(out).__name__, list(out.keys()))
m.eval()
print(m.generate(torch.tensor([[1, 2, 3]]), do_sample=True, top_k=5, max_new_tokens=10, pad_token_id=0).tolist())
print(M(m), R())
