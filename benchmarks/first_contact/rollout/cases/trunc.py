# the truncation cases again with rows that end by max_tokens (in sampling.py my forced EOS lay outside of the truncated set, which no engine does)
from models import *
W=World("llama4"); m=W.m
def P(id,src,truth,cands=True,**p):
    ids,mask=sample(m,eos=False,**p); lg,a=score(m,ids); b=C(pick(process(logits_of(m,ids),ids,**p),ids))
    W.lps(id,src,truth,a,b,mask,ids[:,PL:],lg,ids,cands=cands)
P("L02r","TRL#6789","top-p 0.9",top_p=0.9)
P("L03r","ms-swift#8442","top-k 10",top_k=10)
P("L04r","vime#69","temperature 0.8 + top-k 20",temp=0.8,top_k=20)
P("L04br","vime#64","temperature 0.7 + top-k 30 + top-p 0.95",temp=0.7,top_k=30,top_p=0.95)
P("L04cr","NeMo-RL#69","temperature 1.2 + top-p 0.9",temp=1.2,top_p=0.9)
P("L05r","TRL#6789","min-p 0.1",min_p=0.1)
P("L05br","TRL#6789","min-p 0.05 + temperature 0.8",min_p=0.05,temp=0.8)
P("L06r","vllm#9453","repetition penalty 1.3 + top-p 0.95",rep=1.3,top_p=0.95)
save("work/out_trunc.json")
