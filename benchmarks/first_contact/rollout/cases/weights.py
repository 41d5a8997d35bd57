from models import *
W=World("llama"); m=W.m; sd=m.state_dict(); H=W.hist
def mod(**ch):
    n={k:v.clone() for k,v in sd.items()}
    n.update({k:v for k,v in ch.items()}); return n
def modd(d): n={k:v.clone() for k,v in sd.items()}; n.update(d); return n
w=W.weights
w("W01","TRL#5312","stale by 1 step (all tensors = step 7)",W.step(7))
w("W02","verl#7495","stale by 5 steps (step 3)",W.step(3))
w("W03","OpenRLHF#660 (only some layers updated)","layer 2 not sent, holds step 3",load(m,modd({k:v for k,v in H[3].items() if ".layers.2." in k})))
w("W04","sglang#15890","embed_tokens never updated (step 0)",load(m,modd({"model.embed_tokens.weight":H[0]["model.embed_tokens.weight"]})))
w("W05","sglang#15398","lm_head never updated (step 0)",load(m,modd({"lm_head.weight":H[0]["lm_head.weight"]})))
w("W07","vllm#20550","lm_head tied to embed_tokens by mistake",load(m,modd({"lm_head.weight":sd["model.embed_tokens.weight"].clone()})))
w("W13","EMA (diffusers/TRL ref sync, invented as thread)","EMA weights sent (decay .9)",load(m,modd({k:v.clone() for k,v in W.ema.items()})))
# k and v swapped in fused qkv
d={}
for l in range(4):
    k,v=f"model.layers.{l}.self_attn.k_proj.weight",f"model.layers.{l}.self_attn.v_proj.weight"
    d[k],d[v]=sd[v].clone(),sd[k].clone()
e=load(m,modd(d))
def fuse(s):
    for k,v in s.items():
        if ".q_proj." in k:
            yield k.replace("q_proj","qkv_proj"),torch.cat([v,s[k.replace("q_proj","k_proj")],s[k.replace("q_proj","v_proj")]])
        elif ".gate_proj." in k: yield k.replace("gate_proj","gate_up_proj"),torch.cat([v,s[k.replace("gate_proj","up_proj")]])
        elif any(x in k for x in (".k_proj.",".v_proj.",".up_proj.")): continue
        else: yield k,v
w("W14","torchtitan/tt-metal#52818 (fused qkv order)","fused qkv_proj holds q,v,k",e,bfp=numscope.fingerprint(fuse(e.state_dict())))
def perm(x,h): n=x.shape[0]; return x.view(h,2,n//h//2,-1).transpose(1,2).reshape(n,-1)
d={}
for l in range(4):
    for p,h in (("q",4),("k",2)):
        k=f"model.layers.{l}.self_attn.{p}_proj.weight"; d[k]=perm(sd[k],h)
w("W15","transformers#31788, gpt-fast#190","q,k rotary halves permuted",load(m,modd(d)))
w("W16","Megatron/HF conversion","o_proj of layer 1 transposed",load(m,modd({"model.layers.1.self_attn.o_proj.weight":sd["model.layers.1.self_attn.o_proj.weight"].t().contiguous()})))
w("W17","prime-rl#1167","norms alone cast to bfloat16",load(m,modd({k:v.bfloat16().float() for k,v in sd.items() if "norm" in k})))
def fp8(v): s=v.abs().max()/448; return (v/s).to(torch.float8_e4m3fn).float()*s
def int8(v): s=v.abs().amax(1,keepdim=True)/127; return (v/s).round().clamp(-127,127)*s
w("W18","verl fp8 rollout docs","linears rounded to fp8 e4m3",load(m,modd({k:fp8(v) for k,v in sd.items() if "_proj" in k})))
w("W19","TRL#3466 (bnb)","linears rounded to int8 per row",load(m,modd({k:int8(v) for k,v in sd.items() if "_proj" in k})))
w("W20","sglang#15890 (PP mapping)","layers 1 and 2 swapped",load(m,modd({k:sd[k.replace(".1.",".X.").replace(".2.",".1.").replace(".X.",".2.")].clone() for k in sd if ".layers.1." in k or ".layers.2." in k})))
e=load(m,modd({k:sd[k.replace("gate_proj","Z").replace("up_proj","gate_proj").replace("Z","up_proj")].clone() for k in sd if "gate_proj" in k or "up_proj" in k}))
w("W21","flashinfer/sglang#26194 (w13 order)","gate and up swapped in fused gate_up_proj",e,bfp=numscope.fingerprint(fuse(e.state_dict())))
w("W24","tt-metal#52818 (shard order)","down_proj's two column shards in swapped order (layers all)",load(m,modd({k:torch.cat(v.chunk(2,1)[::-1],1) for k,v in sd.items() if "down_proj" in k})))
d={}
for k in ("model.embed_tokens.weight","lm_head.weight"):
    x=sd[k].clone(); x[240:]=H[0][k][240:]; d[k]=x
w("W25","vocab-parallel padding shard","last 16 rows of embed and lm_head stale (step 0)",load(m,modd(d)))
r=W.step(5); torch.manual_seed(3)
with torch.no_grad():
    for p in r.parameters(): p.add_(torch.randn_like(p)*p.std()*0.02)
rsd=r.state_dict()
e=load(m,modd({k:v for k,v in rsd.items() if ".layers.3." in k}))
w("W26","rank divergence (verl/DDP)","layer 3 comes from a diverged rank 1",e,hist={**W.hfp,"rank 1":numscope.fingerprint(r)})
w("W28","Gemma 1+w conversion (vllm/llama.cpp)","all norms sent minus 1 (zero-centred)",load(m,modd({k:v-1 for k,v in sd.items() if "norm" in k})))
w("W30","sum in place of mean over 2 ranks","all weights doubled",load(m,modd({k:v*2 for k,v in sd.items()})))
w("W31","vLLM sleep level 2, TRL#5312","all weights zero",load(m,modd({k:v*0 for k,v in sd.items()})))
w("W32","llama.cpp/gguf head permutation","heads of q_proj and o_proj unequally ordered: q_proj heads rolled by 1",load(m,modd({k:torch.roll(v,16,0) for k,v in sd.items() if "q_proj" in k})))
# rope base, eps, sliding: weights equal, computation differs
def variant(f):
    c=copy.deepcopy(m.config); f(c); e=type(m)(c); e.load_state_dict(sd); return e.eval()
def rope(c): c.rope_parameters={**c.rope_parameters,"rope_theta":500000.0}
w("C22","vllm#9490","rope base 500000 in place of 10000",variant(rope))
def eps(c): c.rms_norm_eps=1e-2
w("C23","eps (prime-rl#1167)","rms_norm_eps 1e-2 in place of 1e-6",variant(eps))
def eps3(c): c.rms_norm_eps=1e-3
w("C23b","eps","rms_norm_eps 1e-3 in place of 1e-6",variant(eps3))
def rs(c): c.rope_parameters={**c.rope_parameters,"rope_type":"linear","factor":2.0}
w("C24","vllm#43419 (RoPE scaling)","engine applies linear rope scaling 2",variant(rs))
def act(c): c.hidden_act="gelu"
w("C25","activation (hf converters)","gelu in place of silu",variant(act))
save("work/out_weights.json")
