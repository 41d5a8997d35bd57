from models import *
W=World("llama4"); m=W.m; H=W.hist; S=lambda **k: sample(m,**k)
def L_(id,src,truth,f,proc=None,**kw):
    ids,mask=sample(m,**(proc or {})); lg,a=score(m,ids); tok=ids[:,PL:]
    b=f(ids,lg,a,mask); k={**kw}
    if isinstance(b,tuple): a,b,k2=b; k.update(k2)
    W.lps(id,src,truth,a,b,k.pop("mask",mask),k.pop("tok",tok),k.pop("lg",lg),ids,**k)
def proc(**p):
    def f(ids,lg,a,mask):
        full=logits_of(m,ids); return C(pick(process(full,ids,**p),ids))
    return f
def P(id,src,truth,**p): L_(id,src,truth,proc(**p),proc=p)
P("L01","TRL#4159","engine's after temperature 0.6, trainer raw",temp=0.6)
P("L01b","prime-rl#697","engine's after temperature 1.3",temp=1.3)
P("L02","TRL#6789","top-p 0.9",top_p=0.9)
P("L03","ms-swift#8442","top-k 10",top_k=10)
P("L04","vime#69","temperature 0.8 + top-k 20",temp=0.8,top_k=20)
P("L04b","vime#64","temperature 0.7 + top-k 30 + top-p 0.95",temp=0.7,top_k=30,top_p=0.95)
P("L05","TRL#6789","min-p 0.1",min_p=0.1)
P("L06","vllm#9453 (sampling parameters)","repetition penalty 1.3",rep=1.3)
P("L06b","vllm#9453","repetition penalty 1.1, temperature 0.8",rep=1.1,temp=0.8)
L_("L28","prime-rl#697","engine's raw log-probabilities divided by T=0.6 (not logits)",lambda ids,lg,a,mask:(a/0.6))
L_("L29","TRL#4163","trainer divides by T=0.7, engine raw",lambda ids,lg,a,mask:((lg/0.7).log_softmax(-1).gather(2,ids[:,PL:,None])[...,0],a,dict(lg=lg/0.7)))
def nobos(ids,lg,a,mask): return C(pick(logits_of(m,ids[:,1:]),ids[:,1:]))[:, :] if False else pick(logits_of(m,ids[:,1:]),ids[:,1:])[:,PL-2:]
L_("L07","lm-eval#1588, llama-cpp-python#1471","BOS missing in the engine's prompt",nobos)
def bos2(ids,lg,a,mask):
    x=torch.cat([ids[:,:1],ids],1); return pick(logits_of(m,x),x)[:,PL:]
L_("L07b","vllm#15420","double BOS in the engine",bos2)
def eom(ids,lg,a,mask):
    mk=mask.clone()
    for r in range(16):
        n=int(mask[r].sum())
        if n<CL: mk[r,n]=1
    b=a.clone(); b[mask==0]=0.0
    return a,b,dict(mask=mk)
L_("L09","TRL#2708 (mask at EOS), xtuner#1310","mask counts one token too many at the end; engine has 0 there",eom)
def first(ids,lg,a,mask):  # engine never gives the first token's
    b=a.clone(); b[:,0]=0.0; return b
L_("L09b","strands-sglang#34 (boundary token None->0)","first completion token's is 0 in the engine",first)
def nonefirst(ids,lg,a,mask):
    n=mask.sum(1).tolist(); rows=[[None]+a[r,1:n[r]].tolist() for r in range(16)]; return rows
ids,mask=S(); lg,a=score(m,ids); n=mask.sum(1).tolist(); rowsA=[a[r,:n[r]].tolist() for r in range(16)]; allp=pick(logits_of(m,ids),ids)
def rows(id,src,truth,A,B):
    case(id,src,truth,plain=lambda: numscope.compare_logprobs(A,B))
rows("L09c","strands-sglang#34","first completion token's is None in the engine (lists)",rowsA,[[None]+r[1:] for r in rowsA])
rows("L10","SGLang input_token_logprobs (lists)","engine's rows have prompt tokens in front",rowsA,[allp[r,:PL-1+n[r]].tolist() for r in range(16)])
case("L10b","same, tensors","engine's tensor has prompt tokens in front [B,51] against [B,40]",plain=lambda: numscope.compare_logprobs(a,allp),full=lambda: numscope.compare_logprobs(a,allp,mask=mask))
rows("L10c","llama-cpp-python#1528","engine gives no value for EOS (rows one shorter at the end)",rowsA,[r[:-1] if n[i]<CL else r for i,r in enumerate(rowsA)])
L_("L11","maxtext#2103","values shifted by one (that of the next token)",lambda ids,lg,a,mask: torch.cat([a[:,1:],torch.zeros(16,1)],1))
L_("L12","maxtext#2103","logits at t scored with token t (same position)",lambda ids,lg,a,mask: (logits_of(m,torch.cat([ids,ids[:,-1:]],1)).log_softmax(-1)[:,PL:].gather(2,ids[:,PL:,None])[...,0]))
# retokenised: in some rows a pair of tokens is merged into one, later ones shift
def retok(lists):
    out=[]
    for r in range(16):
        x=ids[r].tolist(); p=allp[r].tolist()
        if r%4==0:
            y=x[:PL+5]+[x[PL+5]^1]+x[PL+7:]     # two tokens became another one
            yy=torch.tensor([y]); q=pick(logits_of(m,yy),yy)[0,PL-1:].tolist()[:n[r]-1]
        else: q=p[PL-1:PL-1+n[r]]
        out.append(q)
    return out
rt=retok(1); rows("L13","verl#3960, rllm#816","4 of 16 rows re-tokenized (one token fewer), lists",rowsA,rt)
def rtp(ids_,lg_,a_,mask_):
    b=torch.zeros(16,CL)
    for r in range(16): b[r,:len(rt[r])]=torch.tensor(rt[r])
    return b
L_("L13b","rllm#816 (padded with 0.0 at the tail)","the same, padded with 0 to the length",rtp)
def eosid(ids,lg,a,mask):
    # the engine scores another special id (3) where trainer has EOS (2)
    b=a.clone(); e=ids[:,PL:]==EOS; b[e]=lg.log_softmax(-1)[...,3][e]; return b
L_("L14","special ids (verl/vllm EOS lists)","engine scores id 3 where the trainer has EOS id 2",eosid)
perm=torch.randperm(16,generator=torch.Generator().manual_seed(5))
L_("L15","batch order (dynamic batching; verl)","rows in another order",lambda ids,lg,a,mask: a[perm])
def sortrows(ids,lg,a,mask):
    o=mask.sum(1).argsort(); return a[o]
L_("L15b","length-sorted batch","engine's rows sorted by length",sortrows)
def onerow(ids,lg,a,mask):
    b=a.clone(); b[5]=score(W.step(0),ids)[1][5]; return b
L_("L16","TRL#7017 (in-flight)","row 5 alone from step 0 weights",onerow)
def half(ids,lg,a,mask):
    b=a.clone(); o=score(W.step(0),ids)[1]; b[:,:20]=o[:,:20]; return b
L_("L16b","halo#8 (in-flight update mid-sequence)","first 20 tokens of every row from step 0, rest new",half)
L_("L17","log base 2 (invented)","engine's in log base 2",lambda ids,lg,a,mask: a/0.6931471805599453)
L_("L17b","log10 (llama.cpp/ARPA habit)","engine's in log base 10",lambda ids,lg,a,mask: a/2.302585092994046)
L_("L18","metaseq#87 (positive)","engine's are probabilities",lambda ids,lg,a,mask: a.exp())
L_("L18b","NLL sign (invented)","engine's are negative log-likelihoods (sign)",lambda ids,lg,a,mask: -a)
L_("L19","vLLM cumulative_logprob","engine's are cumulative sums",lambda ids,lg,a,mask: a.cumsum(1))
L_("L19b","TRL#4772 (sequence sum)","engine's is the row's sum at each token",lambda ids,lg,a,mask: (a*mask).sum(1,keepdim=True).expand(16,CL).clone())
L_("L19c","mean per sequence","engine's is the row's mean at each token",lambda ids,lg,a,mask: ((a*mask).sum(1,keepdim=True)/mask.sum(1,keepdim=True)).expand(16,CL).clone())
L_("L27","TRL#3867 (next(iter(lp.values())))","engine's is that of the likeliest token, not the sampled",lambda ids,lg,a,mask: lg.log_softmax(-1).max(-1).values)
L_("L26","verl Megatron vocabulary padding","engine's softmax counts 64 padded zero logits",lambda ids,lg,a,mask: torch.cat([lg,torch.zeros(16,CL,64)],-1).log_softmax(-1).gather(2,ids[:,PL:,None])[...,0])
@torch.no_grad()
def stalekv(ids,lg,a,mask):
    o=W.step(0); c=o(ids[:,:PL],use_cache=True).past_key_values; last=m(ids[:,:PL]).logits[:,-1:]
    z=torch.cat([last,m(ids[:,PL:],past_key_values=c).logits[:,:-1]],1)
    return z.log_softmax(-1).gather(2,ids[:,PL:,None])[...,0]
L_("L31","prime-rl#1650, lmdeploy#4917","stale prefix cache: prompt's KV of step 0",stalekv)
L_("L32","wrong prompt (group index off by one)","engine's prompts rolled by one row (completions same)",lambda ids,lg,a,mask: score(m,torch.cat([ids[:,:PL].roll(1,0),ids[:,PL:]],1))[1])
L_("L33","clamped logprobs (vLLM -9999 sanitize)","-inf where top-k cut the trainer's sampled token",lambda ids,lg,a,mask: C(pick(process(logits_of(m,ids),ids,top_k=10),ids)))
def logit_bias(ids,lg,a,mask):
    x=lg.clone(); x[...,EOS]=-torch.inf; x[...,0]=-torch.inf
    b=x.log_softmax(-1).gather(2,ids[:,PL:,None])[...,0]; e=(ids[:,PL:]==EOS); b[e]=a[e]; return b
L_("L34","vLLM min_tokens / bad_words (EOS masked)","EOS masked in the engine's softmax (tiny effect)",logit_bias)
G=World("gpt2b"); g=G.m
i2,mk=sample(g); lg2,a2=score(g,i2)
pads=torch.randint(1,9,(16,),generator=torch.Generator().manual_seed(1))
def leftpad(mod,pos):
    T=i2.shape[1]+8; x=torch.zeros(16,T,dtype=torch.long); am=torch.zeros(16,T,dtype=torch.long)
    for r in range(16): x[r,8:]=i2[r]; am[r,8:]=1
    # different pad counts: cut the prompt's first tokens? keep whole, pad by 8 everywhere minus pads
    k={"attention_mask":am}
    if pos: k["position_ids"]=(am.cumsum(1)-1).clamp(min=0)
    with torch.no_grad(): z=mod(x,**k).logits.float()
    return z[:,8+PL-1:-1].log_softmax(-1).gather(2,i2[:,PL:,None])[...,0]
G.lps("L08","TRL#6800","gpt2: engine left-pads by 8 without position ids",a2,leftpad(g,False),mk,i2[:,PL:],lg2,i2)
tr=copy.deepcopy(g).train(); torch.manual_seed(0)
with torch.no_grad(): lgd,ad=score(tr,i2)
G.lps("L21","TRL#4, unsloth-zoo#830","dropout 0.1 active in the trainer",ad,a2,mk,i2[:,PL:],lgd,i2,noise=False)
# noise= taken as the docs say, from the trainer that drops out as well
def nz():
    with torch.autocast("cpu",dtype=torch.bfloat16): return score(tr,i2)[1]
G.lps("L21b","TRL#4","the same, noise= taken from the trainer with its dropout",ad,a2,mk,i2[:,PL:],lgd,i2,noise_v=nz())
save("work/out_sampling.json")
