from models import *
# --- llama4: computation differs where positions matter
W=World("llama4"); m=W.m; sd=m.state_dict(); w=W.weights
def variant(f,mm=None):
    mm=mm or m; c=copy.deepcopy(mm.config); f(c); e=type(mm)(c); e.load_state_dict(mm.state_dict()); return e.eval()
w("C22p","vllm#9490","rope base 500000 for 10000 (positions matter)",variant(lambda c: setattr(c,"rope_parameters",{**c.rope_parameters,"rope_theta":500000.0})))
w("C24p","vllm#43419","linear rope scaling 2 (positions matter)",variant(lambda c: setattr(c,"rope_parameters",{**c.rope_parameters,"rope_type":"linear","factor":2.0})))
w("C23p","prime-rl#1167","rms_norm_eps 1e-3 for 1e-6",variant(lambda c: setattr(c,"rms_norm_eps",1e-3)))
def perm(x,h): n=x.shape[0]; return x.view(h,2,n//h//2,-1).transpose(1,2).reshape(n,-1)
n={k:v.clone() for k,v in sd.items()}
for k in n:
    if "q_proj" in k: n[k]=perm(sd[k],4)
    if "k_proj" in k: n[k]=perm(sd[k],2)
w("W15p","transformers#31788","rotary halves permuted (positions matter)",load(m,n))
w("W01p","TRL#5312","stale by 1 step (llama4)",W.step(9))
# attention mask: engine sees a window of 3
class Win(torch.nn.Module): pass
ids,mask=sample(m); lg,a=score(m,ids); T=ids.shape[1]
i=torch.arange(T); allow=(i[None]<=i[:,None])&(i[None]>i[:,None]-3)
am=torch.where(allow,0.0,torch.finfo(torch.float32).min)[None,None].expand(16,1,T,T)
b=score(m,ids,attention_mask=am)[1]
W.lps("C26","verl#3392-like (sliding window)","engine attends to a window of 3 only",a,b,mask,ids[:,PL:],lg,ids)
# --- qwen2: tied head, biases
Q=World("qwen"); q=Q.m
c=copy.deepcopy(q.config); c.tie_word_embeddings=False; e=type(q)(c)
n={k:v.clone() for k,v in q.state_dict().items()}; n["lm_head.weight"]=Q.hist[2]["lm_head.weight"].clone(); e.load_state_dict(n); e.eval()
Q.weights("W06","prime-rl#2823 (tied head desync)","engine's tied head is a separate tensor, left at step 2",e)
n={k:(v*0 if k.endswith("_proj.bias") else v.clone()) for k,v in q.state_dict().items()}
Q.weights("W29","ms-swift#8493 (sync lost names)","qkv biases zero in the engine",load(q,n))
# --- mixtral
X=World("mix"); x=X.m; xs=x.state_dict(); print([k for k in xs if "layers.0" in k])
p=torch.tensor([1,2,3,0])
n={k:(v[p].clone() if "experts" in k else v.clone()) for k,v in xs.items()}
X.weights("W22","sglang#26194 (expert order)","experts in another order (router not)",load(x,n))
n={k:(v.bfloat16().float() if ("gate" in k and "experts" not in k) else v.clone()) for k,v in xs.items()}
X.weights("W23","prime-rl#3524","router weights sent in bfloat16",load(x,n))
n={k:v.clone() for k,v in xs.items()}
for k in n:
    if "experts.down_proj" in k: n[k][3]=X.hist[0][k][3]
X.weights("W23b","expert-parallel rank not refreshed (verl)","down_proj of expert 3 stale (step 0)",load(x,n))
e=copy.deepcopy(x)
for mod in e.modules():
    if type(mod).__name__.endswith("TopKRouter"):
        f=mod.forward
        def fwd(h,_m=mod):
            h=h.reshape(-1,h.shape[-1])
            lo=torch.nn.functional.linear(h.bfloat16(),_m.weight.bfloat16()); pr=lo.float().softmax(-1); tv,ti=pr.topk(2,-1); tv=(tv/tv.sum(-1,keepdim=True)).bfloat16().float(); return lo.float(),tv,ti
        mod.forward=fwd
X.weights("W23c","sglang#39351","router computes in bfloat16 (weights equal)",e)
# --- PEFT
d=L("peft"); p=d["model"].eval(); base=p.get_base_model()
def pstep(k): e=copy.deepcopy(p); e.load_state_dict(d["hist"][k]); return e.eval()
hfp={k:numscope.fingerprint(pstep(k)) for k in d["hist"]}
with torch.no_grad():
    baselp=None
def merged(pm,f=1.0,only=None):
    pm=copy.deepcopy(pm)
    for nm,md in pm.named_modules():
        if hasattr(md,"lora_A") and hasattr(md,"scaling"):
            md.scaling["default"]*= f if (only is None or only in nm) else 0.0
    return pm.merge_and_unload().eval()
plain=merged(p,0.0)
class PW:
    pass
def lora(id,src,truth,e,trainer=p,hist=hfp,mfn=None):
    ids,mask=sample(e); lg,a=score(trainer,ids); b=score(e,ids)[1]
    cd={f"step {k}":score(pstep(k),ids)[1] for k in (0,3,6,7)}; cd["without the adapter"]=score(plain,ids)[1]
    case(id,src,truth,compare=lambda: numscope.compare(numscope.fingerprint(trainer),numscope.fingerprint(e),history=hist),
      plain=lambda: numscope.compare_logprobs(a,b,mask=mask),
      full=lambda: numscope.compare_logprobs(a,b,mask=mask,tokens=ids[:,PL:],logits=lg,noise=bf16noise(trainer,ids),candidates=cd),
      models=lambda: numscope.compare_models(trainer,e,ids))
lora("A08","verl#7495, TRL#2856","adapter never merged: engine has the base",plain)
lora("A09","mlx-vlm#841","LoRA scaled twice (scaling 2 applied twice: 4)",merged(p,2.0))
lora("A10","FastVideo#870","alpha/r ignored: scaling 1 in place of 2",merged(p,0.5))
lora("A11","TRL#3466 (merge_adapter each sync)","merged twice into the base",merged(p,2.0))
lora("A12","SkyRL#1776","q_proj's adapter merged, v_proj's and down_proj's not",merged(p,1.0,only="q_proj"))
lora("A12b","TensorRT-LLM#1668","rsLoRA scaling alpha/sqrt(r) in the engine (5.66 for 2)",merged(p,16/8**.5/2))
lora("A27","TRL#7017","adapter of 3 steps ago merged (step 5)",merged(pstep(5)))
lora("A27b","TRL#7017","both with adapters: engine's adapter of step 5",pstep(5))
e=copy.deepcopy(p)
for md in e.modules():
    if hasattr(md,"scaling") and isinstance(md.scaling,dict): md.scaling["default"]=1.0
lora("A10b","mlx-examples#623","both with adapters: engine's scaling 1 in place of 2 (no tensor differs)",e)
e=copy.deepcopy(p); e.merge_adapter()
lora("A11b","TRL merge_adapter, unmerge forgotten","trainer left merged (merge_adapter) and its layer weights saved with the adapters; engine merges again",merged(p,2.0),trainer=p)
save("work/out_other.json")
