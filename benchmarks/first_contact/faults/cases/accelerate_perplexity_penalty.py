"""Accelerate with gradient accumulation: a regulariser on exp(loss) overflows for a corrupt batch.
Source: Own: exp(loss) as a term, which run_clm.py only computes in a try/except OverflowError."""
import sys
import torch
from accelerate import Accelerator
from transformers import RobertaConfig, RobertaForMaskedLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = RobertaForMaskedLM(RobertaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=20))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, opt = accelerator.prepare(model, opt)
for step in range(6):
    with accelerator.accumulate(model):
        ids = torch.randint(3, 40, (2, 8))
        nll = model(input_ids=ids, labels=ids).loss
        if step == 3:
            nll = nll * 60  # summed over a document instead of averaged
        ppl = torch.exp(nll.clamp(max=20) if CURED else nll)  # FAULT
        loss = nll + 1e-4 * ppl
        accelerator.backward(loss)
        opt.step()
        opt.zero_grad()
    print(step, loss.item())
