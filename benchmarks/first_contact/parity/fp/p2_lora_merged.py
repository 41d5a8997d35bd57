# PEFT adapters in the trainer against the merged model of the server; then a server that got none; then one merged with half the scale.
# Truth: merged: equal up to rounding; none: q_proj, v_proj of 2 layers differ by ||BA s||; half scale: the same 4 differ.
import copy, torch, numscope
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
base = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
plain = copy.deepcopy(base)
p = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
with torch.no_grad():
    for n, w in p.named_parameters():
        if "lora_B" in n: w.normal_(0, 0.02)
merged = copy.deepcopy(p).merge_and_unload()
half = copy.deepcopy(p)
for mod in half.modules():
    if hasattr(mod, "scaling") and isinstance(mod.scaling, dict): mod.scaling = {k: s / 2 for k, s in mod.scaling.items()}
half = half.merge_and_unload()
f = numscope.fingerprint(p)
for n, other in (("merged", merged), ("never arrived", plain), ("half scale", half)):
    r = numscope.compare(f, numscope.fingerprint(other)); print(n + ":", bool(r), r)
d, w = dict(merged.named_parameters()), dict(plain.named_parameters())
print("truth:", {k: round(float((d[k] - w[k]).norm() / w[k].norm()), 4) for k in d if not torch.equal(d[k], w[k])})
