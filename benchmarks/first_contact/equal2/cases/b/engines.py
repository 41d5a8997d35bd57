# part B, model pairs: one trained policy, and what stands in the engine's place; prints the answers of the three functions
import copy, json, os, sys, warnings
warnings.filterwarnings("ignore"); os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM
from peft import LoraConfig, get_peft_model
import numscope
torch.set_num_threads(1); torch.manual_seed(0); V, T = 96, 40
def config(**k): return LlamaConfig(**{**dict(vocab_size=V, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128, tie_word_embeddings=False, attn_implementation="eager", rope_theta=10000.0, rms_norm_eps=1e-5), **k})
def corpus(n, seed):  # a Markov chain of second order: something to learn
    g = torch.Generator().manual_seed(seed); t = torch.randint(0, V, (n, T), generator=g)
    for i in range(2, T): t[:, i] = torch.where(torch.rand(n, generator=g) < 0.75, (t[:, i - 1] * 3 + t[:, i - 2] * 5 + 7) % V, t[:, i])
    return t
def train(model, steps, lr, seed=0, keep=None, parameters=None):
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr); model.train()
    for s in range(steps):
        x = corpus(16, seed + s); model(input_ids=x, labels=x).loss.backward(); opt.step(); opt.zero_grad()
        if keep is not None: keep[s + 1] = copy.deepcopy(model).eval()
    return model.eval()
base = train(LlamaForCausalLM(config()), 150, 3e-3)
past = {0: copy.deepcopy(base)}; trainer = train(copy.deepcopy(base), 6, 1e-3, 900, past)
history = {s: numscope.fingerprint(m) for s, m in past.items() if s < 6}
with torch.no_grad(): tokens = trainer.generate(corpus(8, 5)[:, :8], max_new_tokens=32, do_sample=True, top_k=0, pad_token_id=0, eos_token_id=None)
@torch.no_grad()
def logps(m, t=None, temperature=1.0, **k):
    t = tokens if t is None else t; l = m(input_ids=t, **k).logits[:, :-1].float() / temperature
    return l.log_softmax(-1).gather(2, t[:, 1:, None])[..., 0], l
own, logits = logps(trainer); answers = {}
def clone(**k):
    m = LlamaForCausalLM(config(**k)).eval(); m.load_state_dict(trainer.state_dict()); return m
def ask(name, engine, a=None, hist=history, lp=None, layers=True, weights=True, candidates=None, noise=None, sent=None, against=None, use_logits=True):
    a = trainer if a is None else a; r = {}
    if weights:
        c = numscope.compare(numscope.fingerprint(against if against is not None else a), numscope.fingerprint(sent if sent is not None else engine), history=hist); r["compare"] = [bool(c), str(c)]
    if lp is not False:
        oa, la = (own, logits) if a is trainer else logps(a); ob = lp if lp is not None else logps(engine)[0]
        c = numscope.compare_logprobs(oa, ob, mask=torch.ones_like(oa) , tokens=tokens[:, 1:], logits=la if use_logits else None, candidates=candidates, noise=noise); r["logprobs"] = [bool(c), str(c), c.kind, c.is_certain]; r["mean_abs"] = (oa - ob).abs().mean().item()
    if layers: c = numscope.compare_models(a, engine, input_ids=tokens); r["layers"] = [bool(c), str(c)]
    answers[name] = r; print("===", name)
    for k, v in r.items(): print(f"  [{k}]", v if k == "mean_abs" else (v[0], *v[2:]), "" if k == "mean_abs" else v[1].replace("\n", "\n     "))
    sys.stdout.flush()
def edited(fn, m=None):
    m = clone() if m is None else m
    with torch.no_grad(): fn(m)
    return m
def lora(m, r=4, alpha=32, targets=("q_proj", "v_proj", "down_proj"), steps=25, seed=700):
    p = get_peft_model(copy.deepcopy(m), LoraConfig(r=r, lora_alpha=alpha, target_modules=list(targets), lora_dropout=0.0)); return train(p, steps, 3e-3, seed)
# ---- faults
ask("F01 engine asleep, weights of step 0 (huggingface/trl#5312)", past[0])
ask("F02 one step behind (verl-project/verl#7987, async)", past[5], candidates={"step 5": logps(past[5])[0], "step 0": logps(past[0])[0]})
def some(m): [m.get_parameter(n).copy_(past[0].get_parameter(n)) for n, _ in m.named_parameters() if ".mlp." in n and ".1." in n]
ask("F03 one layer's mlp never reloaded (NovaSky-AI/SkyRL#1680)", edited(some), candidates={"step 0": logps(past[0])[0]})
adapted = lora(trainer)
with adapted.disable_adapter(): bare_lp = logps(adapted)[0]
ask("F04 adapter not used by the engine (ms-swift#9855, unsloth#8701)", trainer, a=adapted, hist=None, candidates={"without the adapter": bare_lp})
merged = copy.deepcopy(adapted).merge_and_unload().eval()
delta = {n: merged.get_parameter(n) - trainer.get_parameter(n) for n, _ in trainer.named_parameters()}
ask("F05 adapter merged twice (huggingface/trl#2698)", edited(lambda m: [p.add_(2 * delta[n]) for n, p in m.named_parameters()]), a=adapted, hist=None)
ask("F06 adapter merged without alpha/r (vllm-project/vllm#10798)", edited(lambda m: [p.add_(delta[n] / 8) for n, p in m.named_parameters()]), a=adapted, hist=None)
headed = lora(trainer, targets=("q_proj", "lm_head")); hm = copy.deepcopy(headed).merge_and_unload().eval()
ask("F07 lm_head's adapter dropped (vllm-project/vllm#51594)", edited(lambda m: [m.get_parameter(n).copy_(hm.get_parameter(n)) for n, _ in m.named_parameters() if "lm_head" not in n]), a=headed, hist=None)
older = lora(trainer, steps=20); om = copy.deepcopy(older).merge_and_unload().eval()
ask("F08 adapter of an earlier step merged", om, a=adapted, hist={"adapter at 20": numscope.fingerprint(older)})
def halves(w, h=4): return w.view(h, 2, w.shape[0] // h // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)
def permute(m, names=("q_proj", "k_proj"), h=4): [p.copy_(halves(p, h)) for n, p in m.named_parameters() if any(k in n for k in names)]
ask("F09 rotary halves not permuted back (pytorch/torchtitan#1441, AiDotNet#2074)", edited(permute))
ask("F10 keys permuted with the wrong number of heads (ggml-org/llama.cpp#3364)", edited(lambda m: permute(m, ("k_proj",), 2)))
def swapkv(m):
    for l in m.model.layers: k = l.self_attn.k_proj.weight.clone(); l.self_attn.k_proj.weight.copy_(l.self_attn.v_proj.weight); l.self_attn.v_proj.weight.copy_(k)
def fused(m, order="qkv", gate="gu", rename=True):
    out = {}
    for n, w in m.state_dict().items():
        if ".q_proj" in n: out[n.replace("q_proj", "qkv_proj")] = torch.cat([m.state_dict()[n.replace("q_proj", k + "_proj")] for k in order])
        elif ".gate_proj" in n: out[n.replace("gate_proj", "gate_up_proj")] = torch.cat([m.state_dict()[n.replace("gate_proj", k)] for k in (["gate_proj", "up_proj"] if gate == "gu" else ["up_proj", "gate_proj"])])
        elif not any(k in n for k in ("k_proj", "v_proj", "up_proj")): out[n] = w
    return out
ask("F11 fused in the order q, v, k (meta-pytorch/gpt-fast#190)", edited(swapkv), sent=fused(trainer, "qvk"))
def gateup(m):
    for l in m.model.layers: g = l.mlp.gate_proj.weight.clone(); l.mlp.gate_proj.weight.copy_(l.mlp.up_proj.weight); l.mlp.up_proj.weight.copy_(g)
ask("F12 gate and up swapped", edited(gateup), sent=fused(trainer, gate="ug"))
ask("F13 RMSNorm's epsilon lost (EleutherAI/gpt-neox#1345)", clone(rms_norm_eps=1e-1))
ask("F14 rope_theta lost (NVIDIA/TensorRT-LLM#1676)", clone(rope_theta=500000.0) if hasattr(config(), "rope_theta") else clone(rope_parameters={"rope_type": "default", "rope_theta": 500000.0}))
ask("F15 rope scaling not applied (NVIDIA/TensorRT-LLM#1676)", clone(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}))
tied = LlamaForCausalLM(config(tie_word_embeddings=True)).eval(); tied.load_state_dict(trainer.state_dict(), strict=False)
with torch.no_grad(): tied.model.embed_tokens.weight.copy_(trainer.model.embed_tokens.weight)
ask("F16 head tied by the engine's config (ModelCloud/GPTQModel#1550)", tied)
ask("F17 square projections transposed (GPT-2's Conv1D)", edited(lambda m: [p.copy_(p.T.clone()) for n, p in m.named_parameters() if "o_proj" in n]))
def shards(m): [p.copy_(torch.cat(p.chunk(2)[::-1])) for n, p in m.named_parameters() if "down_proj" in n or "o_proj" in n]
ask("F18 shards of two ranks joined in the wrong order", edited(shards))
def int8(m): 
    for n, p in m.named_parameters():
        if "proj" in n: s = p.abs().amax(1, keepdim=True) / 7; p.copy_((p / s).round() * s)
ask("F19 quantized to 4 bits without being asked", edited(int8))
ask("F20 norms plus one (Gemma's convention kept)", edited(lambda m: [p.add_(1) for n, p in m.named_parameters() if "norm" in n]))
ema = edited(lambda m: [p.copy_(sum(past[s].get_parameter(n) for s in range(7)) / 7) for n, p in m.named_parameters()])
ask("F21 the averaged weights are served, not the policy's", ema)
def newrows(m): m.model.embed_tokens.weight[:10].normal_(0, 0.5, generator=torch.Generator().manual_seed(3))
ask("F22 rows of added tokens initialized again by the engine", edited(newrows))
ask("F23 logit scale lost (Cohere, MiniCPM; final scale 1.5)", trainer, lp=logps(trainer, temperature=1.5)[0], layers=False)
ask("F24 dropout left on in the trainer's forward", trainer, lp=logps(edited(lambda m: m.train(), clone(attention_dropout=0.2)))[0], layers=False)
ask("F25 positions begin at 1 in the engine", trainer, lp=logps(trainer, position_ids=torch.arange(3, T + 3)[None].expand(8, -1) * 2)[0], layers=False)
window = clone(); 
@torch.no_grad()
def windowed(): 
    m = torch.full((T, T), float("-inf")).triu(1) + torch.full((T, T), float("-inf")).tril(-6); return logps(trainer, attention_mask=m[None, None].expand(8, 1, T, T))[0]
ask("F26 sliding window of 6 in the engine alone", trainer, lp=windowed(), layers=False)
q = Qwen2ForCausalLM(Qwen2Config(vocab_size=V, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager")); q = train(q, 60, 3e-3)
nobias = copy.deepcopy(q)
with torch.no_grad(): [p.zero_() for n, p in nobias.named_parameters() if n.endswith("bias")]
ask("F27 Qwen2's biases never sent", nobias, a=q, hist=None, sent={n: w for n, w in q.state_dict().items() if not n.endswith("bias")})
cast = edited(lambda m: [p.copy_(p.bfloat16().float()) for n, p in m.named_parameters() if ".1." in n])
ask("F28 one layer went through bfloat16 (float32 promised)", cast)
scale = clone(); [setattr(l.self_attn, "scaling", 64 ** -0.5) for l in scale.model.layers]
ask("F29 attention's scale of another head size", scale)
swapped = clone(); swapped.model.layers = nn.ModuleList([swapped.model.layers[i] for i in (1, 0, 2)])
ask("F30 layers loaded in another order (10 before 2)", swapped)
# ---- healthy
ask("H01 sdpa against eager", clone(attn_implementation="sdpa"))
serving = copy.deepcopy(trainer).bfloat16()
ask("H02 bfloat16 copy, compared with the cast", serving, against={n: p.bfloat16() for n, p in trainer.state_dict().items()})
ask("H03 fused qkv and gate_up", clone(), sent=fused(trainer))
t1 = LlamaForCausalLM(config(tie_word_embeddings=True)); t1 = train(t1, 30, 3e-3); t2 = LlamaForCausalLM(config()).eval(); t2.load_state_dict({**t1.state_dict(), "lm_head.weight": t1.model.embed_tokens.weight}, strict=False)
ask("H04 tied trainer, engine holds the head itself", t2, a=t1, hist=None)
ask("H05 adapter in the trainer, merged in the engine", merged, a=adapted, hist=None)
wrapped = torch.compile(clone(), backend="eager")
ask("H06 under torch.compile's wrapper, sent as model.* with module.", wrapped, sent={"module._orig_mod." + n: w for n, w in trainer.state_dict().items()}, layers=False)
@torch.no_grad()
def cached():
    out, c = [], None
    for i in range(T - 1): r = trainer(input_ids=tokens[:, i:i + 1], past_key_values=c, use_cache=True); c = r.past_key_values; out.append(r.logits[:, 0])
    return torch.stack(out, 1).log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
ask("H07 token by token with a cache", trainer, lp=cached(), layers=False)
ask("H08 one row at a time", trainer, lp=torch.cat([logps(trainer, tokens[i:i + 1])[0] for i in range(8)]), layers=False)
ask("H09 temperature 0.7 on both sides", trainer, lp=logps(trainer, temperature=0.7)[0], candidates={"at its temperature, 0.7": logps(trainer, temperature=0.7)[0]}, layers=False)
quant = edited(int8)
ask("H10 quantized on purpose, noise told", quant, noise=logps(quant)[0], against=quant, layers=False)
with torch.autocast("cpu", torch.bfloat16): auto = logps(trainer)[0]
ask("H11 bfloat16 engine, noise under autocast", serving, noise=auto, weights=False, layers=False)
ask("H12 a saved and loaded copy", (trainer.save_pretrained("saved_policy"), LlamaForCausalLM.from_pretrained("saved_policy", attn_implementation="eager").eval())[1])
ask("H13 one step behind on purpose, told as candidate", past[5], candidates={"step 5, as the pipeline has it": logps(past[5])[0]}, weights=False, layers=False)
padded = dict(trainer.state_dict()); padded = {n: (nn.functional.pad(w, (0, 0, 0, 32)) if n in ("lm_head.weight", "model.embed_tokens.weight") else w) for n, w in padded.items()}
ask("H14 vocabulary padded to 128 by the engine", trainer, sent=padded, lp=False, layers=False)
def extra(m): m.register_buffer("inv_freq_cache", torch.randn(7)); m.k_scale = nn.Parameter(torch.ones(1))
ask("H15 engine has scales and caches of its own", edited(extra), lp=False)
half = copy.deepcopy(trainer).half(); ask("H16 float16 engine beside float32, layers and logprobs", half, weights=False)
json.dump(answers, open("b_engines.json", "w"))
