"""GPT-2 by transformers: the script shifts labels, and the model shifts them again: it learns the token after the next.
Source: https://github.com/huggingface/transformers/issues/47394 (also pull 44642, which says that it trips up a lot of users)
Truth: accuracy of the next token and of the one after it.
Could a tool know: no. The labels are labels; that they are the inputs moved by one could be seen, but is no error in other models.
"""
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
V = 17
model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=20, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0))
opt = torch.optim.AdamW(model.parameters(), 3e-3)
def data(): return (torch.randint(0, V, (16, 1)) + torch.arange(17) * torch.randint(1, 6, (16, 1))) % V
for step in range(150):
    s = data(); x = s[:, :-1]; labels = x if HEALTHY else s[:, 1:]
    loss = model(input_ids=x, labels=labels).loss; opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): s = data(); p = model(input_ids=s).logits.argmax(-1)
print(f"TRUTH next token {(p[:, 3:-1] == s[:, 4:]).float().mean():.2f} the one after {(p[:, 3:-2] == s[:, 5:]).float().mean():.2f}")
