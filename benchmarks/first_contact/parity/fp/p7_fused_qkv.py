# GQA: the trainer's q/k/v_proj against a server's fused qkv_proj and gate_up_proj (vLLM); right; then k and v swapped in one layer.
# Truth: equal; k and v of layer 1 differ.
import copy, torch, numscope
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
m = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
def server(swap=False):
    s = copy.deepcopy(m)
    for i, l in enumerate(s.model.layers):
        a = l.self_attn; parts = [a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]
        if swap and i: parts[1:] = parts[:0:-1]
        a.qkv_proj = nn.Linear(32, 64, bias=False); a.qkv_proj.weight = nn.Parameter(torch.cat(parts)); del a.q_proj, a.k_proj, a.v_proj
        g = l.mlp; g.gate_up_proj = nn.Linear(32, 128, bias=False); g.gate_up_proj.weight = nn.Parameter(torch.cat([g.gate_proj.weight, g.up_proj.weight])); del g.gate_proj, g.up_proj
    return s
for swap in (False, True):
    r = numscope.compare(numscope.fingerprint(m), numscope.fingerprint(server(swap))); print("swapped:" if swap else "right:", bool(r), r)
