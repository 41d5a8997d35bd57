"""From yongzhuo/LLaMA3-SFT issue 1 (also mlwithme/TransformerTranslation issue 6).
Wrong: the mask is True for padding where the model wants 1 for tokens: the real tokens are hidden, the padding is seen.
Could know: partly (the positions that the mask leaves are those with the padding id; the labels that count are where it hides).
"""
import sys, torch, torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, pad_token_id=0)); model.train()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
def batch(n=16):
    L = torch.randint(6, 17, (n, 1)); ids = torch.randint(1, 32, (n, 3)).repeat(1, 6)[:, :16]      # period 3: the token three back must be seen
    pad = torch.arange(16)[None] >= L; ids = ids.masked_fill(pad, 0); return ids, pad
for step in range(100):
    ids, pad = batch(); mask = (~pad if H else pad).long(); labels = ids.masked_fill(pad, -100)
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss; opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: share of real tokens that are masked out", (mask[~pad] == 0).float().mean().item(), "loss", loss.item())
