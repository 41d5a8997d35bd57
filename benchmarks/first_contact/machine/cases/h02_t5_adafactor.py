# opts: --check again:every=1
# truth: healthy (transformers' T5 with transformers' Adafactor, relative step)
import flips as C, torch
from transformers import T5Config, T5ForConditionalGeneration, Adafactor
torch.manual_seed(0); m = T5ForConditionalGeneration(T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)); m.train()
o = Adafactor(m.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
for C.STEP in range(6):
    x = torch.randint(1, 60, (2, 10)); m(input_ids=x, labels=x[:, :6].contiguous()).loss.backward(); o.step(); o.zero_grad()
C.finish(m, o)
