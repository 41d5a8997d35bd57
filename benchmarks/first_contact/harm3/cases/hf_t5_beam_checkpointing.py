"""T5 from a tiny configuration: gradient checkpointing with label smoothing and Adafactor, then beam search with a logits processor and a stopping criterion of the script's."""
# PRELUDE
from transformers import Adafactor, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList, T5Config, T5ForConditionalGeneration

m = T5ForConditionalGeneration(T5Config(vocab_size=60, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0, dropout_rate=0.1))
m.gradient_checkpointing_enable()
m.train()
W(m)
opt = Adafactor(m.parameters(), relative_step=True, scale_parameter=True, warmup_init=True)
for s in range(4):
    x = torch.randint(2, 60, (3, 9), generator=torch.Generator().manual_seed(s))
    y = torch.where(torch.arange(7) < 5, torch.randint(2, 60, (3, 7), generator=torch.Generator().manual_seed(50 + s)), -100)
    out = m(input_ids=x, labels=y, attention_mask=(x > 5).long())
    loss = F.cross_entropy(out.logits.flatten(0, 1), y.flatten(), ignore_index=-100, label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m))
calls = []


class P(LogitsProcessor):
    def __call__(self, ids, scores):
        calls.append(tuple(ids.shape))
        return scores.masked_fill(torch.arange(scores.shape[-1]) % 7 == 3, -float("inf"))


class S(StoppingCriteria):
    def __call__(self, ids, scores, **kw):
        return torch.full((ids.shape[0],), ids.shape[1] >= 9, dtype=torch.bool)


m.eval()
x = torch.randint(2, 60, (2, 6), generator=torch.Generator().manual_seed(7))
y = m.generate(x, num_beams=3, max_new_tokens=12, logits_processor=LogitsProcessorList([P()]), stopping_criteria=StoppingCriteriaList([S()]), output_scores=True, return_dict_in_generate=True)
print(y.sequences.tolist(), H(y.sequences_scores), calls, R())
