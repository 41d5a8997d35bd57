import copy, json, sys, torch, warnings, traceback, time
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
import numscope
V=256; PL=12; CL=40; EOS=2
L=lambda n: torch.load(f"work/models/{n}.pt",weights_only=False)
OUT=[]
@torch.no_grad()
def logits_of(m,ids,**k):
    return m(ids,**k).logits[:,:-1].float()
def pick(lg,ids):  # logprob of the next token
    return lg.log_softmax(-1).gather(2,ids[:,1:,None])[...,0]
def process(lg,ids,temp=1.0,top_k=0,top_p=1.0,min_p=0.0,rep=1.0):
    """HF/vLLM order: repetition penalty, temperature, min-p / top-k, top-p; lg [B,T,V] at t is of token t+1"""
    lg=lg.clone()
    if rep!=1.0:
        for t in range(lg.shape[1]):
            seen=torch.zeros(lg.shape[0],V,dtype=torch.bool).scatter_(1,ids[:,:t+1],True)
            x=lg[:,t]; lg[:,t]=torch.where(seen,torch.where(x<0,x*rep,x/rep),x)
    lg=lg/temp
    if top_k:
        lg=lg.masked_fill(lg<lg.topk(top_k,-1).values[...,-1:],-torch.inf)
    if top_p<1:
        s,i=lg.sort(-1); c=s.softmax(-1).cumsum(-1); rm=c<=1-top_p; rm[...,-1]=False
        lg=lg.masked_fill(torch.zeros_like(rm).scatter(-1,i,rm),-torch.inf)
    if min_p:
        p=lg.softmax(-1); lg=lg.masked_fill(p<min_p*p.max(-1,keepdim=True).values,-torch.inf)
    return lg
@torch.no_grad()
def sample(m,B=16,seed=0,bos=True,eos=True,**proc):
    g=torch.Generator().manual_seed(seed)
    ids=torch.randint(4,V,(B,PL),generator=g)
    if bos: ids[:,0]=1
    for _ in range(CL):
        lg=m(ids).logits.float()
        if proc: lg=process(lg,ids,**proc)
        ids=torch.cat([ids,torch.multinomial(lg[:,-1].softmax(-1),1,generator=g)],1)
    # rows end at different lengths (max_tokens / EOS)
    n=torch.randint(20,CL+1,(B,),generator=g); n[0]=CL
    mask=(torch.arange(CL)[None]<n[:,None]).long()
    for r in range(B):
        if n[r]<CL:
            if eos: ids[r,PL+n[r]-1]=EOS
            ids[r,PL+n[r]:]=0
    return ids,mask
C=lambda x: x[:,PL-1:]      # completion part of scores [B,T-1]
def score(m,ids,**k):
    lg=logits_of(m,ids,**k); return C(lg),C(pick(lg,ids))
def bf16noise(m,ids):
    with torch.autocast("cpu",dtype=torch.bfloat16): return score(m,ids)[1]
def load(m,sd):
    e=copy.deepcopy(m); e.load_state_dict(sd); return e.eval()
def short(x,n=1400):
    s=str(x); return s if len(s)<n else s[:n]+" …"
def call(f):
    t=time.time()
    try:
        r=f(); d=dict(text=short(r),true=bool(r))
        for k in ("kind","is_certain"):
            if hasattr(r,k): d[k]=getattr(r,k)
    except Exception as e:
        d=dict(text="RAISED "+type(e).__name__+": "+short(e),true=None)
    d["s"]=round(time.time()-t,2); return d
def case(id,src,truth,compare=None,plain=None,full=None,models=None):
    r=dict(id=id,src=src,truth=truth)
    for n,f in (("compare",compare),("plain",plain),("full",full),("models",models)):
        if f is not None: r[n]=call(f)
    OUT.append(r); print(f"=== {id} — {truth}",flush=True)
    for n in ("compare","plain","full","models"):
        if n in r: print(f"[{n}] {r[n].get('kind','')} certain={r[n].get('is_certain')} bool={r[n]['true']} {r[n]['s']}s\n{r[n]['text']}",flush=True)
class World:
    def __init__(s,name):
        d=L(name); s.m=d["model"].eval(); s.hist=d["hist"]; s.ema=d.get("ema")
        s.hfp={k:numscope.fingerprint(load(s.m,sd)) for k,sd in s.hist.items()}
        s.fp=numscope.fingerprint(s.m)
    def step(s,k): return load(s.m,s.hist[k])
    def cands(s,ids,steps=(0,3,6,7)): return {f"step {k}":score(s.step(k),ids)[1] for k in steps}
    def weights(s,id,src,truth,engine,bfp=None,models=True,trainer=None,afp=None,hist=True,extra=None,ids=None,mfn=None):
        t=trainer or s.m
        i,mask=ids or sample(engine)
        lg,a=score(t,i); b=score(engine,i)[1]; tok=i[:,PL:]
        cd=s.cands(i); cd.update(extra(i) if extra else {})
        case(id,src,truth,
          compare=lambda: numscope.compare(afp or numscope.fingerprint(t), bfp if bfp is not None else numscope.fingerprint(engine), history=s.hfp if hist is True else hist),
          plain=lambda: numscope.compare_logprobs(a,b,mask=mask),
          full=lambda: numscope.compare_logprobs(a,b,mask=mask,tokens=tok,logits=lg,noise=bf16noise(t,i),candidates=cd),
          models=mfn or ((lambda: numscope.compare_models(t,engine,i)) if models else None))
    def lps(s,id,src,truth,a,b,mask,tok,lg,ids,cands=True,noise=True,noise_v=None,models=None):
        case(id,src,truth,
          plain=lambda: numscope.compare_logprobs(a,b,mask=mask),
          full=lambda: numscope.compare_logprobs(a,b,mask=mask,tokens=tok,logits=lg,noise=(noise_v if noise_v is not None else bf16noise(s.m,ids)) if noise else None,candidates=s.cands(ids) if cands else None),
          models=models)
def save(p): json.dump(OUT,open(p,"w"),indent=1)
