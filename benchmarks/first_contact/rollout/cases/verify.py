"""The shortest script of each miss; run twice, with two seeds."""
import sys, copy, torch, warnings; warnings.filterwarnings("ignore"); torch.set_num_threads(1)
import numscope
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
from peft import LoraConfig, get_peft_model
seed=int(sys.argv[1]); torch.manual_seed(seed)
def show(n,r): print(f"--- {n}: bool={bool(r)} kind={getattr(r,'kind','')} certain={getattr(r,'is_certain','')}\n   "+str(r).split("\n")[0][:230]+ (" | "+str(r).split("\n")[1][:170] if "\n" in str(r) else ""))
kw=dict(vocab_size=64,hidden_size=32,intermediate_size=64,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2)
m=LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False,**kw)).eval(); x=torch.randint(0,64,(4,20))
e=copy.deepcopy(m); e.set_attn_implementation("eager")
r=numscope.compare_models(m,e,x); show("V1 sdpa/eager: all agree, yet false",r); print("   only_a",list(r.only_a)[:3],"only_b",list(r.only_b)[:3])
p=get_peft_model(copy.deepcopy(m),LoraConfig(r=4,lora_alpha=8,target_modules=["q_proj"]))
for n,w in p.named_parameters():
    if "lora_B" in n: nn.init.normal_(w,std=.1)
p.eval(); FP=numscope.fingerprint
r=numscope.compare_models(p,copy.deepcopy(p).merge_and_unload(),x); show("V1b PEFT/merged: all agree, yet false",r); print("   only_a",list(r.only_a)[:3])
show("V2 a PEFT model against its own state dict",numscope.compare(FP(p),FP(p.state_dict())))
q=copy.deepcopy(p); q.merge_adapter()
show("V3 merge_adapter() against merge_and_unload()",numscope.compare(FP(q),FP(copy.deepcopy(p).merge_and_unload())))
s=copy.deepcopy(p)
for l in s.modules():
    if isinstance(getattr(l,"scaling",None),dict): l.scaling["default"]/=2
show("V4 PEFT against PEFT with half the scaling",numscope.compare(FP(p),FP(s)))
x8=MixtralForCausalLM(MixtralConfig(num_local_experts=4,num_experts_per_tok=2,**kw)).eval()
show("V5 MoE against itself in bfloat16",numscope.compare_models(x8,copy.deepcopy(x8).bfloat16(),x))
lg=torch.randn(8,40,200)*2.5; lp=lg.log_softmax(-1); tok=torch.distributions.Categorical(logits=lg).sample(); a=lp.gather(2,tok[...,None])[...,0]
C=lambda b,**k: numscope.compare_logprobs(a,b,tokens=tok,logits=lg,**k)
show("V6 log base 2",C(a/.6931471805599453)); show("V7 log base 10",C(a/2.302585092994046)); show("V8 divided by T",C(a/.6))
show("V9 rows in another order",C(a.roll(1,0))); show("V10 likeliest token's",C(lp.max(-1).values)); show("V11 cumulative",C(a.cumsum(1))); show("V12 row's mean",C(a.mean(1,keepdim=True).expand(8,40)))
def cut(l,T=1,k=0,p=1,mp=0):
    l=l/T
    if k: l=l.masked_fill(l<l.topk(k,-1).values[...,-1:],-torch.inf)
    if p<1:
        v,i=l.sort(-1); rm=v.softmax(-1).cumsum(-1)<=1-p; rm[...,-1]=False; l=l.masked_fill(torch.zeros_like(rm).scatter(-1,i,rm),-torch.inf)
    if mp: q=l.softmax(-1); l=l.masked_fill(q<mp*q.max(-1,keepdim=True).values,-torch.inf)
    return l
def sampled(f):
    z=cut(lg,**f); t=torch.distributions.Categorical(logits=z).sample(); return t, lp.gather(2,t[...,None])[...,0], z.log_softmax(-1).gather(2,t[...,None])[...,0]
for n,f in (("V13 min-p .1",dict(mp=.1)),("V13b min-p .05",dict(mp=.05)),("V14 T .7 + top-k 30 + top-p .95",dict(T=.7,k=30,p=.95)),("V14b top-k 30 + top-p .9",dict(k=30,p=.9))):
    t,A,B=sampled(f); show(n,numscope.compare_logprobs(A,B,tokens=t,logits=lg))
t,A,B=sampled(dict(p=.9)); B2=B.clone(); B2[0,0]=-torch.inf; show("V15 top-p .9 with one -inf (forced end token)",numscope.compare_logprobs(A,B2,tokens=t,logits=lg))
t,A,B=sampled(dict(T=.6)); B2=B.clone(); B2[0,0]=-torch.inf; show("V15b temperature .6 with one -inf",numscope.compare_logprobs(A,B2,tokens=t,logits=lg))
def drop(): return nn.functional.dropout(lg,.05).log_softmax(-1).gather(2,tok[...,None])[...,0]
A=drop(); show("V16 dropout in the trainer, noise= from the same trainer",numscope.compare_logprobs(A,a,noise=drop()))
# head a step behind: question 'temperature' though logits= disprove it
W=torch.randn(200,32)*.4; h=torch.randn(8,40,32); L1=h@W.T; L2=h@(W*1.01+torch.randn_like(W)*.01).T
t=torch.distributions.Categorical(logits=L1).sample(); g=lambda l:l.log_softmax(-1).gather(2,t[...,None])[...,0]
show("V17 a head that differs by 1 % and 1 % noise",numscope.compare_logprobs(g(L1),g(L2),tokens=t,logits=L1))
b=a.clone(); b[2]=(lg+torch.randn_like(lg)*1.0).log_softmax(-1).gather(2,tok[...,None])[2,:,0]; c=b.clone()
old=(lg+0*lg).clone(); b2=a.clone(); o=(lg+torch.randn_like(lg)).log_softmax(-1).gather(2,tok[...,None])[...,0]; b2[2]=o[2]
show("V18 row 2 alone is of the candidate",C(b2,candidates={"step 0":o}))
b3=o.clone(); b3[:,20:]=a[:,20:]; show("V18b the first 20 tokens of each row are the candidate's",C(b3,candidates={"step 0":o}))
pen=lg.clone()
for j in range(1,40):
    seen=torch.zeros(8,200,dtype=torch.bool).scatter_(1,tok[:,:j],True); pen[:,j]=torch.where(seen,torch.where(lg[:,j]<0,lg[:,j]*1.2,lg[:,j]/1.2),lg[:,j])
show("V19 repetition penalty 1.2",C(pen.log_softmax(-1).gather(2,tok[...,None])[...,0]))
show("V20 64 padded zero logits in the softmax",C(torch.cat([lg,torch.zeros(8,40,64)],-1).log_softmax(-1).gather(2,tok[...,None])[...,0]))
