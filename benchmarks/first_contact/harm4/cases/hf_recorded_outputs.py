"""transformers' recorder of hidden states, attentions and router logits (hooks or patched forwards of its own), gradient checkpointing on and off, static cache, assisted generation."""
# PRELUDE
import warnings, logging

warnings.filterwarnings("ignore")
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

transformers.logging.set_verbosity_error()
cfg = dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=63)
torch.manual_seed(0)
m = LlamaForCausalLM(LlamaConfig(**cfg, attn_implementation="eager"))
draft = LlamaForCausalLM(LlamaConfig(**{**cfg, "num_hidden_layers": 1}))
W(m)
W(draft)
opt = torch.optim.AdamW(m.parameters(), 1e-3)
ids = torch.randint(2, 60, (2, 10))
for s in range(4):
    if s == 2:
        m.gradient_checkpointing_enable({"use_reentrant": False})
    if s == 3:
        m.gradient_checkpointing_disable()
    m.train()
    out = m(ids, labels=ids, output_hidden_states=True, output_attentions=True, use_cache=False)
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print(s, float(out.loss.detach()).hex(), len(out.hidden_states), len(out.attentions), H(*out.hidden_states), H(*out.attentions))
m.eval(), draft.eval()
with torch.no_grad():
    g = m.generate(ids, max_new_tokens=6, do_sample=True, top_k=8, output_hidden_states=True, output_scores=True, return_dict_in_generate=True)
    print(g.sequences.tolist(), H(*g.scores), len(g.hidden_states))
    print(m.generate(ids, max_new_tokens=6, num_beams=2, do_sample=False).tolist())
    print(m.generate(ids[:1], assistant_model=draft, max_new_tokens=8, do_sample=False).tolist())
    try:
        print(m.generate(ids, max_new_tokens=4, cache_implementation="static", do_sample=False, disable_compile=True).tolist())
    except Exception as e:
        print(type(e).__name__)
print(M(m), R())
