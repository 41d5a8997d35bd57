# opts: --check again:every=1
# truth: healthy (karpathy/nanoGPT's loop on transformers' GPT2; accumulation, clipping, cosine schedule, dropout)
import flips as C, torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0); m = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2)); m.train()
o = torch.optim.AdamW(m.parameters(), 1e-3, weight_decay=0.1); s = torch.optim.lr_scheduler.CosineAnnealingLR(o, 6)
for C.STEP in range(6):
    for _ in range(2):
        x = torch.randint(0, 60, (2, 12)); (m(input_ids=x, labels=x).loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0); o.step(); s.step(); o.zero_grad(set_to_none=True)
C.finish(m, o)
