"""Fine-tuning by transformers with get_linear_schedule_with_warmup made for a fraction of the steps: the model stops changing in mid-run.
Source: https://github.com/jzhang38/EasyContext/issues/21
Truth: rate from step 80 on; whether weights move in the last 100 steps.
Could a tool know: yes. The optimizer steps with a rate of 0.
"""
import sys, torch
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
net = T5ForConditionalGeneration(T5Config(vocab_size=24, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, decoder_start_token_id=0, dropout_rate=0.0))
opt = torch.optim.AdamW(net.parameters(), 5e-3); STEPS = 220
sched = get_linear_schedule_with_warmup(opt, 10, STEPS if HEALTHY else STEPS // 3)
for step in range(STEPS):
    x = torch.randint(2, 24, (16, 6)); loss = net(input_ids=x, labels=x.flip(1)).loss; opt.zero_grad(); loss.backward(); torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0); opt.step(); sched.step()
    if step == 119: old = [p.detach().clone() for p in net.parameters()]
print(f"TRUTH rate {opt.param_groups[0]['lr']:.1e} moved in the last 100 steps {max((a - b).abs().max().item() for a, b in zip(old, net.parameters())):.1e} loss {loss:.3f}")
