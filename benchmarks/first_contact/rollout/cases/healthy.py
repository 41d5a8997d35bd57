from models import *
import tempfile, os
from safetensors.torch import save_file, safe_open
def both(tag,name):
    W=World(name); m=W.m; sd=m.state_dict(); ids,mask=sample(m); lg,a=score(m,ids); tok=ids[:,PL:]
    def lp(id,truth,b,noise=True,a=a,lg=lg,mask=mask,models=None,compare=None,tok=tok):
        case(id+tag,"",truth,compare=compare,plain=lambda: numscope.compare_logprobs(a,b,mask=mask),
          full=lambda: numscope.compare_logprobs(a,b,mask=mask,tokens=tok,logits=lg,noise=bf16noise(m,ids) if noise else None,candidates=W.cands(ids)),models=models)
    FP=numscope.fingerprint
    for id,dt in (("H01","bfloat16"),("H02","float16")):
        d=getattr(torch,dt); e=copy.deepcopy(m).to(d)
        cast=((k,v.to(d)) for k,v in m.named_parameters())
        lp(id,f"{dt} engine, compared with the cast trainer",score(e,ids)[1],compare=lambda: numscope.compare(FP(cast),FP(e),history=W.hfp),models=lambda: numscope.compare_models(m,e,ids))
        case(id+"x"+tag,"",f"{dt} engine against the float32 trainer, no cast (says: only a cast)",compare=lambda: numscope.compare(W.fp,FP(e),history=W.hfp))
    e=copy.deepcopy(m); e.set_attn_implementation("eager")
    lp("H03","eager attention against sdpa",score(e,ids)[1],compare=lambda: numscope.compare(W.fp,FP(e),history=W.hfp),models=lambda: numscope.compare_models(m,e,ids))
    b=torch.cat([score(m,ids[r:r+1])[1] for r in range(16)])
    lp("H04","batches of one",b)
    x=torch.cat([torch.zeros(16,9,dtype=torch.long),ids],1); am=(torch.arange(x.shape[1])>=9).long().expand(16,-1)
    with torch.no_grad(): z=m(x,attention_mask=am,position_ids=(am.cumsum(1)-1).clamp(min=0)).logits.float()[:,9+PL-1:-1]
    lp("H05","left padding with position ids",z.log_softmax(-1).gather(2,tok[...,None])[...,0])
    with torch.no_grad():
        o=m(ids[:,:PL],use_cache=True); c=o.past_key_values; L1=[o.logits[:,-1:]]
        for t in range(PL,ids.shape[1]-1):
            o=m(ids[:,t:t+1],past_key_values=c); L1.append(o.logits)
        b=torch.cat(L1,1).log_softmax(-1).gather(2,tok[...,None])[...,0]
    lp("H06","KV cache, token by token",b)
    e=copy.deepcopy(m).double()
    lp("H07","float64 engine",score(e,ids)[1],compare=lambda: numscope.compare(FP((k,v.double()) for k,v in m.named_parameters()),FP(e),history=W.hfp),models=lambda: numscope.compare_models(m,e,ids))
    tb=copy.deepcopy(m).bfloat16(); lgb,ab=score(tb,ids); eb=copy.deepcopy(tb); eb.set_attn_implementation("eager")
    lp("H14","bf16 trainer, bf16 engine with other kernels",score(eb,ids)[1],a=ab,lg=lgb,compare=lambda: numscope.compare(FP(tb),FP(eb)),models=lambda: numscope.compare_models(tb,eb,ids))
    lp("H14b","bf16 trainer, float32 engine",a,a=ab,lg=lgb)
    lgT=lg/0.3; aT=lgT.log_softmax(-1).gather(2,tok[...,None])[...,0]; e=copy.deepcopy(m).bfloat16()
    bT=(score(e,ids)[0]/0.3).log_softmax(-1).gather(2,tok[...,None])[...,0]
    nT=None
    with torch.autocast("cpu",dtype=torch.bfloat16): nT=(score(m,ids)[0]/0.3).log_softmax(-1).gather(2,tok[...,None])[...,0]
    case("H16"+tag,"","temperature 0.3 on both sides, bf16 engine",plain=lambda: numscope.compare_logprobs(aT,bT,mask=mask),full=lambda: numscope.compare_logprobs(aT,bT,mask=mask,tokens=tok,logits=lgT,noise=nT))
    bm=a.clone(); bm[mask==0]=-torch.inf; m2=mask.clone(); m2[3]=0
    lp("H15","-inf outside of the mask, one row masked whole",bm,mask=m2)
    lp("H15b","engine's values as float16 numbers",a.half())
    case("H09"+tag,"","engine's names language_model.*, trainer's module._orig_mod.*",compare=lambda: numscope.compare(FP({"module._orig_mod."+k:v for k,v in sd.items()}),FP({"language_model."+k:v for k,v in sd.items()}),history=W.hfp))
    return W,m,sd,ids
W,m,sd,ids=both("","llama"); FP=numscope.fingerprint
both("p","llama4")
def fuse(s):
    for k,v in s.items():
        if ".q_proj." in k: yield k.replace("q_proj","qkv_proj"),torch.cat([v,s[k.replace("q_proj","k_proj")],s[k.replace("q_proj","v_proj")]])
        elif ".gate_proj." in k: yield k.replace("gate_proj","gate_up_proj"),torch.cat([v,s[k.replace("gate_proj","up_proj")]])
        elif any(x in k for x in (".k_proj.",".v_proj.",".up_proj.")): continue
        else: yield k,v
case("H10","","vLLM's fused qkv_proj and gate_up_proj (GQA)",compare=lambda: numscope.compare(W.fp,FP(fuse(sd)),history=W.hfp))
case("H10b","","fused, bf16 against cast trainer",compare=lambda: numscope.compare(FP((k,v.bfloat16()) for k,v in sd.items()),FP((k,v.bfloat16()) for k,v in fuse(sd))))
d=tempfile.mkdtemp(dir="work"); ks=list(sd)
for i in range(3): save_file({k:sd[k].contiguous().clone() for k in ks[i::3]},f"{d}/m{i}.safetensors")
def pieces():
    for i in range(3):
        with safe_open(f"{d}/m{i}.safetensors","pt") as f:
            for k in f.keys(): yield k,f.get_tensor(k)
case("H11","","three safetensors shards read tensor by tensor",compare=lambda: numscope.compare(W.fp,FP(pieces()),history=W.hfp))
def sv():
    FP(m).save(f"{d}/a.json"); FP(pieces()).save(f"{d}/b.json"); return numscope.compare(f"{d}/a.json",f"{d}/b.json",history=W.hfp)
case("H11b","","both saved as JSON",compare=sv)
Q=World("qwen"); q=Q.m
case("H12","","tied head: engine's state dict without lm_head.weight",compare=lambda: numscope.compare(Q.fp,FP({k:v for k,v in q.state_dict().items() if k!="lm_head.weight"}),history=Q.hfp))
c=copy.deepcopy(q.config); c.tie_word_embeddings=False; e=type(q)(c); e.load_state_dict(q.state_dict()); e.eval()
case("H12b","","tied head held as two equal tensors in the engine",compare=lambda: numscope.compare(Q.fp,FP(e),history=Q.hfp),models=lambda: numscope.compare_models(q,e,ids))
P=L("peft"); p=P["model"].eval(); e=copy.deepcopy(p).merge_and_unload().eval()
pids,pm=sample(e); pl,pa=score(p,pids)
case("H08","","adapter merged in the engine",compare=lambda: numscope.compare(FP(p),FP(e)),plain=lambda: numscope.compare_logprobs(pa,score(e,pids)[1],mask=pm),models=lambda: numscope.compare_models(p,e,pids))
ee=copy.deepcopy(p).bfloat16().merge_and_unload().eval()
case("H08b","","adapter merged in bf16 by the engine (vLLM-like), trainer float32 (only rounding; not bit-equal)",plain=lambda: numscope.compare_logprobs(pa,score(ee,pids)[1],mask=pm),full=lambda: numscope.compare_logprobs(pa,score(ee,pids)[1],mask=pm,tokens=pids[:,PL:],logits=pl,noise=bf16noise(p,pids),candidates={"without the adapter":score(copy.deepcopy(p).unload(),pids)[1]}),models=lambda: numscope.compare_models(p,ee,pids))
em=copy.deepcopy(p); em.merge_adapter()
case("H08c","","trainer in merge_adapter() state against merged engine",compare=lambda: numscope.compare(FP(em),FP(e)))
case("H08d","","engine holds base + adapter unmerged with vLLM names (no base_model.model. prefix), trainer PEFT",compare=lambda: numscope.compare(FP(p),FP({k.replace("base_model.model.",""):v for k,v in p.state_dict().items()})))
# other merge kernel: bf16 compute then fp32
X=World("mix"); x=X.m; xi,xm=sample(x); xl,xa=score(x,xi); xb=copy.deepcopy(x).bfloat16()
case("H22","","MoE, bf16 engine",plain=lambda: numscope.compare_logprobs(xa,score(xb,xi)[1],mask=xm),full=lambda: numscope.compare_logprobs(xa,score(xb,xi)[1],mask=xm,tokens=xi[:,PL:],logits=xl,noise=bf16noise(x,xi),candidates=X.cands(xi)),models=lambda: numscope.compare_models(x,xb,xi),compare=lambda: numscope.compare(FP((k,v.bfloat16()) for k,v in x.named_parameters()),FP(xb),history=X.hfp))
# mixtral per-expert names as vLLM/HF checkpoints have them
def unfuse():
    for k,v in x.state_dict().items():
        if k.endswith("experts.gate_up_proj"):
            for i in range(4):
                g,u=v[i].chunk(2); b=k[:-len("gate_up_proj")]; yield f"{b}{i}.w1.weight",g; yield f"{b}{i}.w3.weight",u
        elif k.endswith("experts.down_proj"):
            for i in range(4): yield f"{k[:-len('down_proj')]}{i}.w2.weight",v[i]
        else: yield k,v
case("H23","","MoE: engine gets experts one by one (w1, w2, w3), trainer has them stacked",compare=lambda: numscope.compare(X.fp,FP(unfuse()),history=X.hfp))
G=World("gpt2b"); g=G.m; gi,gm=sample(g); gl,ga=score(g,gi)
case("H24","","gpt2 with dropout, compare_models with the trainer in train mode",models=lambda: numscope.compare_models(copy.deepcopy(g).train(),g,gi))
gb=copy.deepcopy(g).bfloat16()
case("H25","","gpt2, bf16 engine",plain=lambda: numscope.compare_logprobs(ga,score(gb,gi)[1],mask=gm),models=lambda: numscope.compare_models(g,gb,gi))
w=torch.nn.parallel.DataParallel(m) if False else None
import torch.distributed as dist
dist.init_process_group("gloo",init_method=f"file://{os.path.abspath(d)}/rdv",rank=0,world_size=1)
D=torch.nn.parallel.DistributedDataParallel(copy.deepcopy(m))
case("H26","","trainer in DDP, engine bare",compare=lambda: numscope.compare(FP(D),FP(m),history=W.hfp),models=lambda: numscope.compare_models(D,m,ids))
C_=torch.compile(copy.deepcopy(m),backend="eager")
case("H27","","trainer in torch.compile (eager backend)",compare=lambda: numscope.compare(FP(C_),FP(m),history=W.hfp),models=lambda: numscope.compare_models(C_,m,ids))
try:
    from torch.distributed.fsdp import fully_shard
    F=copy.deepcopy(m); mesh=torch.distributed.device_mesh.init_device_mesh("cpu",(1,))
    for l in F.model.layers: fully_shard(l,mesh=mesh)
    fully_shard(F,mesh=mesh)
    case("H28","","trainer FSDP2 (1 rank), engine bare",compare=lambda: numscope.compare(FP(F),FP(m),history=W.hfp))
except Exception as ex: print("FSDP2 not tried",ex)
save("work/out_healthy.json")
dist.destroy_process_group()
