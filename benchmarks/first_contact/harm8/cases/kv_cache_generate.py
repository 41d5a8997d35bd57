# what: a tiny Llama by transformers trained, then generate() with dynamic and static caches, beams, sampling, output_scores (-inf)
# benign: yes
# cmp: status stdout files left
# PRELUDE
import warnings, logging; warnings.simplefilter("ignore")
from transformers import LlamaConfig, LlamaForCausalLM
import transformers; transformers.logging.set_verbosity_error()
torch.manual_seed(0); m = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1)); W(m); opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
for s in range(3):
    t = torch.randint(2, 40, (3, 10), generator=torch.Generator().manual_seed(s)); opt.zero_grad(); l = m(input_ids=t, labels=t).loss; l.backward(); opt.step(); print(float(l.detach()).hex()); m.eval(); k = torch.ones(3, 5, dtype=torch.long); k[0, :2] = 0
    for kw in (dict(do_sample=False), dict(do_sample=True, top_k=5, top_p=.8), dict(num_beams=3, do_sample=False), dict(do_sample=False, cache_implementation="static")):
        if "cache_implementation" in kw and s: continue
        g = m.generate(t[:, :5], attention_mask=k, max_new_tokens=6, return_dict_in_generate=True, output_scores=True, bad_words_ids=[[3], [4]], **kw); print(g.sequences.tolist(), H(g.scores), torch.stack(g.scores).isinf().sum().item())
    m.train()
print(M(m), R())
