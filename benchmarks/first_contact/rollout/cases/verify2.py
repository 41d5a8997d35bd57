from models import *
s=int(sys.argv[1])
def show(n,r): print(f"--- {n} seed {s}: bool={bool(r)} kind={r.kind} certain={r.is_certain}\n   "+str(r).split("\n")[0][:200])
torch.manual_seed(s)
h=torch.randn(8,40,32); M=torch.randn(200,32)*.4; L1=h@M.T
for c in (1.02,1.05):
    L2=h@(M*c+torch.randn_like(M)*.015).T; t=torch.distributions.Categorical(logits=L1).sample(); g=lambda l:l.log_softmax(-1).gather(2,t[...,None])[...,0]
    show(f"V17b head {c} x its weights + noise; tokens and logits given",numscope.compare_logprobs(g(L1),g(L2),tokens=t,logits=L1))
W=World("llama"); m=W.m; n={k:v.clone() for k,v in m.state_dict().items()}; n["lm_head.weight"]=W.hist[0]["lm_head.weight"]; e=load(m,n)
i,mask=sample(e,seed=s); lg,a=score(m,i); show("W05",numscope.compare_logprobs(a,score(e,i)[1],mask=mask,tokens=i[:,PL:],logits=lg,noise=bf16noise(m,i),candidates=W.cands(i)))
c=copy.deepcopy(m.config); c.rms_norm_eps=1e-2; e=type(m)(c); e.load_state_dict(m.state_dict()); e.eval(); i,mask=sample(e,seed=s); lg,a=score(m,i)
show("C23 eps",numscope.compare_logprobs(a,score(e,i)[1],mask=mask,tokens=i[:,PL:],logits=lg))
W=World("llama4"); m=W.m; i,mask=sample(m,seed=s); lg,a=score(m,i); old=score(W.step(0),i)[1]; b=a.clone(); b[5]=old[5]
show("L16 row 5 of step 0, candidate given",numscope.compare_logprobs(a,b,mask=mask,tokens=i[:,PL:],logits=lg,candidates={"step 0":old}))
for nm,x in (("L07 BOS missing",pick(logits_of(m,i[:,1:]),i[:,1:])[:,PL-2:]),):
    show(nm,numscope.compare_logprobs(a,x,mask=mask,tokens=i[:,PL:],logits=lg))
G=World("gpt2b"); t=copy.deepcopy(G.m).train(); torch.manual_seed(s); i,mask=sample(G.m,seed=s); e=score(G.m,i)[1]
with torch.no_grad(): lg,a=score(t,i); nz=score(t,i)[1]
show("L21 dropout",numscope.compare_logprobs(a,e,mask=mask,tokens=i[:,PL:],logits=lg)); show("L21b dropout, noise= with dropout",numscope.compare_logprobs(a,e,mask=mask,noise=nz))
P=L("peft"); p=P["model"].eval(); FP=numscope.fingerprint
r=numscope.compare(FP(p),FP({k.replace("base_model.model.",""):v for k,v in p.state_dict().items()})); print("--- H08d:",bool(r),str(r)[:170].replace("\n"," | "))
X=World("mix"); n={k:v for k,v in X.m.state_dict().items()}
