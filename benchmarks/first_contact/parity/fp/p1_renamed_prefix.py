# A VLM's checkpoint names its LM "model.language_model.*", the trainer "model.*" (transformers 4.52 renamed them); the DDP/compile wrappers too.
# Second: the same with one changed weight. Truth: all equal; then exactly model.layers.1.mlp.up_proj.weight differs, by 0.01 of its norm.
import copy, torch, numscope
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
m = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
class VLM(nn.Module):
    def __init__(self, lm):
        super().__init__(); self.model = nn.Module(); self.model.language_model = lm.model; self.lm_head = lm.lm_head; self.vision = nn.Linear(4, 4)
v = VLM(copy.deepcopy(m))
print("1:", numscope.compare(numscope.fingerprint(m), numscope.fingerprint(v)))
with torch.no_grad():
    w = v.model.language_model.layers[1].mlp.up_proj.weight; n = torch.randn_like(w); w += n * 0.01 * w.norm() / n.norm()
r = numscope.compare(numscope.fingerprint(torch.compile(m)), numscope.fingerprint(v)); print("2:", bool(r), r)
