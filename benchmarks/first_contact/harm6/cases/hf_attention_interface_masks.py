"""transformers' AttentionInterface with a function of the script's own, switched at run time with set_attn_implementation, its calls counted per layer; eager, sdpa and own give their bits; output_attentions, static and quantizing caches in generate between training steps."""
# PRELUDE
import warnings
warnings.simplefilter("ignore")
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()
calls = []


def mine(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kw):
    calls.append((module.layer_idx, tuple(query.shape), attention_mask is None, sorted(k for k in kw if k in ("is_causal", "sliding_window", "position_ids"))))
    n = query.shape[1] // key.shape[1]
    k, v = key.repeat_interleave(n, 1), value.repeat_interleave(n, 1)
    w = query @ k.transpose(-1, -2) * scaling
    if attention_mask is not None:
        w = w + attention_mask if attention_mask.is_floating_point() else w.masked_fill(~attention_mask, torch.finfo(w.dtype).min)
    elif w.shape[-2] > 1:
        w = w + torch.full(w.shape[-2:], -1e9).triu(1)
    w = torch.softmax(w, -1)
    return (w @ v).transpose(1, 2).contiguous(), w


AttentionInterface.register("mine", mine)
torch.manual_seed(1)
m = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager", bos_token_id=1, eos_token_id=2, pad_token_id=0))
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
ids = lambda s: torch.randint(3, 64, (2, 10), generator=torch.Generator().manual_seed(s))
for s, kind in enumerate(["eager", "mine", "sdpa", "mine", "eager"]):
    m.set_attn_implementation(kind)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[0, :3] = 0
    m.train()
    opt.zero_grad()
    loss = m(input_ids=ids(s), attention_mask=mask, labels=ids(s)).loss
    loss.backward()
    opt.step()
    print(s, kind, loss.item().hex(), M(m), len(calls), H([str(c) for c in calls]))
    m.eval()
    with torch.no_grad():
        out = m(input_ids=ids(s), output_attentions=kind != "sdpa")
        print(H(out.logits), None if out.attentions is None else [H(a) for a in out.attentions if a is not None])
    for cache in ("dynamic", "static"):
        g = m.generate(ids(50 + s)[:, :4], max_new_tokens=5, do_sample=True, cache_implementation=cache, top_k=10)
        print(cache, g.tolist(), R())
print(calls[:3])
