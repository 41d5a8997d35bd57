"""Part C: trainer and engine, two tiny Llamas. Each case prints what compare, compare_logprobs or compare_models says."""
import copy, os, sys, warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
warnings.filterwarnings("ignore")
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import numscope

torch.manual_seed(0)
V = 97
small = dict(vocab_size=V, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.15)


def fresh(**k):
    return LlamaForCausalLM(LlamaConfig(**{**small, **k})).eval()


trainer = fresh()
tokens = torch.randint(3, V, (6, 30))
PROMPT = 8
opt = torch.optim.AdamW(trainer.parameters(), lr=0.01)
history, past = {}, {}
for step in range(4):
    history[step] = numscope.fingerprint(trainer)
    past[step] = copy.deepcopy(trainer.state_dict())
    if step < 3:
        trainer(tokens, labels=tokens).loss.backward()
        opt.step()
        opt.zero_grad()
    else:
        history.pop(3)
now = trainer.state_dict()


def engine(**k):
    e = fresh(**k)
    e.load_state_dict(now, strict=False)
    return e


def logits(m, t=tokens, **k):
    with torch.no_grad():
        return m(t, **k).logits[:, PROMPT - 1:-1].float()


def lp(l, t=None):
    t = tokens[:, PROMPT:] if t is None else t
    return l.log_softmax(-1).gather(2, t[..., None])[..., 0]


own_logits = logits(trainer)
own = lp(own_logits)
want = tokens[:, PROMPT:]
before = {n: p.clone() for n, p in now.items()}
cases = []


def case(f):
    cases.append(f)
    return f


def show(kind, r):
    print(f"  [{kind}] {bool(r)}", f"kind={getattr(r, 'kind', None)} certain={getattr(r, 'is_certain', None)}" if kind == "logprobs" else "")
    print("    " + str(r).replace("\n", "\n    ")[:1200])


def weights(e, **k):
    show("compare", numscope.compare(numscope.fingerprint(trainer), numscope.fingerprint(e), history=history, **k))


def probs(b, a=None, **k):
    show("logprobs", numscope.compare_logprobs(own if a is None else a, b, **k))


def models(e, a=None, t=tokens):
    show("models", numscope.compare_models(a or trainer, e, t))


# faults
@case
def f_stale_stage():
    "the last pipeline stage's layers and head come from two steps ago, norms of layer 0 from one step ago"
    e = engine()
    sd = e.state_dict()
    for n in sd:
        if "layers.2." in n or "lm_head" in n:
            sd[n].copy_(past[1][n])
        elif "layers.0." in n and "norm" in n:
            sd[n].copy_(past[2][n])
    weights(e), probs(lp(logits(e)), candidates={"step 1": lp(logits((lambda m: (m.load_state_dict(past[1]), m)[1])(fresh())))}), models(e)


@case
def f_fused_kv_swapped():
    "k and v exchange their places in qkv_proj (verl/vLLM loaders)"
    fused = {}
    for n, p in now.items():
        if "q_proj" in n:
            k, v = now[n.replace("q_proj", "k_proj")], now[n.replace("q_proj", "v_proj")]
            parts = [p, v, k] if "layers.1" in n else [p, k, v]
            fused[n.replace("q_proj", "qkv_proj")] = torch.cat(parts)
        elif "k_proj" not in n and "v_proj" not in n:
            fused[n] = p
    show("compare", numscope.compare(numscope.fingerprint(trainer), numscope.fingerprint(fused), history=history))


@case
def f_merged_twice():
    "the adapter is merged again on top of the merged weights (TRL 2698)"
    from peft import LoraConfig, get_peft_model

    t = get_peft_model(copy.deepcopy(trainer), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], init_lora_weights=False)).eval()
    e = copy.deepcopy(t).merge_and_unload()
    for n, m in t.named_modules():
        if hasattr(m, "get_delta_weight"):
            e.get_submodule(n.replace("base_model.model.", "")).weight.data += m.get_delta_weight("default")
    show("compare", numscope.compare(numscope.fingerprint(t), numscope.fingerprint(e), history=history))
    with t.disable_adapter():
        plain = lp(logits(t))
    probs(lp(logits(e)), a=lp(logits(t)), candidates={"no adapter": plain})
    models(e, a=t)


@case
def f_old_merge_kept():
    "the merge of the step before is not taken back: W + old + new"
    from peft import LoraConfig, get_peft_model

    t = get_peft_model(copy.deepcopy(trainer), LoraConfig(r=4, lora_alpha=8, target_modules=["v_proj"], init_lora_weights=False)).eval()
    old = copy.deepcopy(t).merge_and_unload()
    hist = {"step 6": numscope.fingerprint(copy.deepcopy(old))}
    for n, p in t.named_parameters():
        if "lora_" in n:
            p.data += 0.05 * torch.randn_like(p)
    e = copy.deepcopy(old)
    for n, m in t.named_modules():
        if hasattr(m, "get_delta_weight"):
            e.get_submodule(n.replace("base_model.model.", "")).weight.data += m.get_delta_weight("default")
    show("compare", numscope.compare(numscope.fingerprint(t), numscope.fingerprint(e), history=hist))
    probs(lp(logits(e)), a=lp(logits(t)))


@case
def f_alpha():
    "the engine reads alpha / sqrt(r) (rslora) where the trainer has alpha / r"
    from peft import LoraConfig, get_peft_model

    t = get_peft_model(copy.deepcopy(trainer), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj"], init_lora_weights=False)).eval()
    e = copy.deepcopy(t)
    for m in e.modules():
        if isinstance(getattr(m, "scaling", None), dict):
            m.scaling["default"] = 8 / 2
    e = e.merge_and_unload()
    show("compare", numscope.compare(numscope.fingerprint(t), numscope.fingerprint(e), history=history))
    models(e, a=t)


@case
def f_rope_theta():
    "rope theta of another config"
    e = engine(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    weights(e), probs(lp(logits(e)), tokens=want, logits=own_logits), models(e)


@case
def f_norm_eps():
    "rms_norm_eps 1e-2 in place of 1e-6"
    e = engine(rms_norm_eps=1e-2)
    weights(e), probs(lp(logits(e))), models(e)


@case
def f_window():
    "the engine attends to the last 8 tokens only"
    e = engine(attn_implementation="eager")
    mask = torch.full((30, 30), torch.finfo(torch.float32).min).triu(1)
    mask = mask + torch.full((30, 30), torch.finfo(torch.float32).min).tril(-8)
    mask = mask.clamp(min=torch.finfo(torch.float32).min)
    inner = e.forward
    e.forward = lambda t, **k: inner(t, attention_mask=mask[None, None].expand(len(t), 1, 30, 30), **k)
    probs(lp(logits(e))), models(e)


@case
def f_gqa_repeat():
    "key heads are tiled in place of repeated (0 1 0 1 0 1 for 0 0 0 1 1 1)"
    e = engine()
    order = torch.tensor([0, 3, 1, 4, 2, 5])
    for layer in e.model.layers:
        a = layer.self_attn
        a.q_proj.weight.data = a.q_proj.weight.data.view(6, 8, 48)[order].reshape(48, 48)
    weights(e), models(e)


@case
def f_temperature():
    "processed logprobs at 0.6 (TRL 4159)"
    probs(lp(own_logits / 0.6)), probs(lp(own_logits / 0.6), tokens=want, logits=own_logits)


@case
def f_topk_rep():
    "a repetition penalty of 1.3 in the engine's logprobs"
    l = own_logits.clone()
    for i in range(len(l)):
        for t in range(l.shape[1]):
            seen = tokens[i, :PROMPT + t].unique()
            l[i, t, seen] = torch.where(l[i, t, seen] > 0, l[i, t, seen] / 1.3, l[i, t, seen] * 1.3)
    probs(lp(l)), probs(lp(l), tokens=want, logits=own_logits)


@case
def f_minp():
    "min-p 0.1 in the engine's logprobs, at temperature 1"
    p = own_logits.softmax(-1)
    l = own_logits.masked_fill(p < 0.02 * p.max(-1, keepdim=True).values, -torch.inf)
    probs(lp(l)), probs(lp(l), tokens=want, logits=own_logits)


@case
def f_bos_twice():
    "the engine puts another BOS in front"
    t = torch.cat([torch.full((6, 1), 1), tokens], 1)
    with torch.no_grad():
        l = trainer(t).logits[:, PROMPT:-1]
    probs(lp(l)), probs(lp(l), tokens=want, logits=own_logits)


@case
def f_leftpad():
    "rows with a shorter prompt are padded on the left, and pads count as positions and are attended to"
    short = tokens.clone()
    short[3:, :4] = 0
    mask = (short != 0).long()
    pos = (mask.cumsum(1) - 1).clamp(min=0)
    a = lp(logits(trainer, short, attention_mask=mask, position_ids=pos))
    b = lp(logits(trainer, short))
    probs(b, a=a), probs(b, a=a, tokens=want)


@case
def f_mask_one():
    "the completion's mask is one too long: the token behind EOS is counted, where the engine has 0"
    n = torch.tensor([10, 22, 15, 18, 9, 20])
    b = own.clone()
    inside = torch.arange(22)[None] < n[:, None]
    b[~inside] = 0.0
    mask = torch.arange(22)[None] <= n[:, None]
    probs(b, mask=mask), probs(b, mask=mask, tokens=want)


@case
def f_base2():
    "log2, and rows' sums of 22"
    probs(own / torch.log(torch.tensor(2.0)))


@case
def f_adapter_rows():
    "rows 2 and 5 got another tenant's adapter"
    torch.manual_seed(5)
    other = engine()
    for layer in other.model.layers:
        layer.self_attn.v_proj.weight.data += 0.1 * torch.randn_like(layer.self_attn.v_proj.weight)
    b = own.clone()
    b[[2, 5]] = lp(logits(other))[[2, 5]]
    probs(b, candidates={"tenant B": lp(logits(other))}), probs(b)


@case
def f_head_tied():
    "the engine ties the head to the embedding (tie_word_embeddings read from a wrong config)"
    e = engine(tie_word_embeddings=True)
    weights(e), probs(lp(logits(e))), models(e)


@case
def f_experts():
    "experts 0 and 3 are exchanged in layer 1 of a mixture"
    torch.manual_seed(3)
    c = MixtralConfig(**{**small, "num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2})
    t = MixtralForCausalLM(c).eval()
    e = copy.deepcopy(t)
    done = []
    for n, p in e.named_parameters():
        if "layers.1." in n and "experts" in n and p.ndim == 3:
            p.data = p.data[[3, 1, 2, 0]].clone()
            done.append(n)
    print("   ", done)
    show("compare", numscope.compare(numscope.fingerprint(t), numscope.fingerprint(e)))
    models(e, a=t)


@case
def f_scale_qk():
    "softmax scale 1/d in place of 1/sqrt(d)"
    e = engine()
    for layer in e.model.layers:
        layer.self_attn.scaling = 1 / 8
    weights(e), probs(lp(logits(e)), tokens=want, logits=own_logits), models(e)


@case
def f_nan_pad():
    "one row is nan beyond its end, and all others are a step old"
    old = fresh()
    old.load_state_dict(past[2])
    b = lp(logits(old))
    b[4, 12:] = float("nan")
    probs(b, candidates={"step 2": lp(logits(old))})


@case
def f_gate_up():
    "a positional loader reads gate and up in the other order, one layer (nntrainer 4194)"
    e = engine()
    m = e.model.layers[1].mlp
    m.gate_proj, m.up_proj = m.up_proj, m.gate_proj
    weights(e), models(e)


@case
def f_plus_one():
    "norm weights with 1 added (vLLM 31464)"
    e = engine()
    for n, p in e.named_parameters():
        if "norm" in n:
            p.data += 1
    weights(e), probs(lp(logits(e))), models(e)


# healthy
@case
def h_bf16():
    "the engine in bfloat16; noise from the trainer under autocast"
    e = engine().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        noise = lp(logits(trainer))
    show("compare", numscope.compare(numscope.fingerprint((n, p.bfloat16()) for n, p in now.items()), numscope.fingerprint(e)))
    weights(e), probs(lp(logits(e)), noise=noise), models(e)


@case
def h_fused():
    "qkv_proj and gate_up_proj, names with another prefix"
    fused = {}
    for n, p in now.items():
        n = "language_model." + n
        if "q_proj" in n:
            fused[n.replace("q_proj", "qkv_proj")] = torch.cat([p, now[n[15:].replace("q_proj", "k_proj")], now[n[15:].replace("q_proj", "v_proj")]])
        elif "gate_proj" in n:
            fused[n.replace("gate_proj", "gate_up_proj")] = torch.cat([p, now[n[15:].replace("gate_proj", "up_proj")]])
        elif not any(w in n for w in ("k_proj", "v_proj", "up_proj")):
            fused[n] = p
    show("compare", numscope.compare(numscope.fingerprint(trainer), numscope.fingerprint(fused), history=history))


@case
def h_merged():
    "a merged adapter, rslora and dora-free, two target kinds"
    from peft import LoraConfig, get_peft_model

    t = get_peft_model(copy.deepcopy(trainer), LoraConfig(r=4, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "gate_proj"], init_lora_weights=False)).eval()
    e = copy.deepcopy(t).merge_and_unload()
    show("compare", numscope.compare(numscope.fingerprint(t), numscope.fingerprint(e), history=history))
    probs(lp(logits(e)), a=lp(logits(t))), models(e, a=t)


@case
def h_eager():
    "sdpa beside eager attention, float32"
    e = engine(attn_implementation="eager")
    weights(e), probs(lp(logits(e))), models(e)


@case
def h_cache():
    "one token at a time with a cache"
    out, cache = [], None
    with torch.no_grad():
        for t in range(29):
            r = trainer(tokens[:, t:t + 1], past_key_values=cache, use_cache=True)
            cache = r.past_key_values
            out.append(r.logits)
    probs(lp(torch.cat(out, 1)[:, PROMPT - 1:].float()))


@case
def h_pad_right():
    "rows of other lengths in another order of batching, unpadded on one side"
    n = [20, 30, 25, 28, 19, 30]
    a = [own[i, : n[i] - PROMPT].tolist() for i in range(6)]
    b = [lp(logits(trainer, tokens[i:i + 1, : n[i]]), tokens[i:i + 1, PROMPT:n[i]])[0].tolist() for i in range(6)]
    probs(b, a=a)


@case
def h_both_tempered():
    "both at 0.6"
    probs(lp(engine()(tokens).logits[:, PROMPT - 1:-1].detach() / 0.6), a=lp(own_logits / 0.6))


@case
def h_compiled():
    "the engine compiled, saved and loaded by safetensors, tied"
    from safetensors.torch import load_file, save_file

    t = fresh(tie_word_embeddings=True)
    sd = {n: p for n, p in t.state_dict().items() if n != "lm_head.weight"}
    save_file(sd, "tied.safetensors")
    show("compare", numscope.compare(numscope.fingerprint(t), numscope.fingerprint(load_file("tied.safetensors"))))
    models(torch.compile(copy.deepcopy(t), backend="eager"), a=t)


@case
def h_fp16():
    "a float16 engine, logits in float32"
    e = engine().half()
    probs(lp(logits(e))), models(e)


@case
def h_vocab_padded():
    "the engine's embedding and head are padded to a multiple of 64"
    e = engine()
    sd = {n: (torch.cat([p, torch.zeros(31, 48)]) if p.shape[0] == V else p) for n, p in e.state_dict().items()}
    show("compare", numscope.compare(numscope.fingerprint(trainer), numscope.fingerprint(sd), history=history))


for f in cases:
    if len(sys.argv) > 1 and f.__name__ not in sys.argv[1:]:
        continue
    print(f"== {f.__name__}: {f.__doc__}")
    try:
        f()
    except Exception as e:
        print("  !!", type(e).__name__, e)
    same = all(torch.equal(before[n], p) for n, p in trainer.state_dict().items()) and torch.equal(logits(trainer), own_logits)
    print("  bits", same, flush=True)
