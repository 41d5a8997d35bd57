import copy, torch, os
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM
from peft import LoraConfig, get_peft_model
torch.set_num_threads(1)
V=256
g=torch.Generator().manual_seed(7)
def chain(seed):
    g=torch.Generator().manual_seed(seed)
    return (torch.randn(V,V,generator=g)*2.0).softmax(-1)
P1,P2=chain(1),chain(2)
def data(P,n,l):
    x=torch.empty(n,l,dtype=torch.long); x[:,0]=1; cur=torch.randint(4,V,(n,),generator=g); x[:,1]=cur
    for t in range(2,l):
        cur=torch.multinomial(P[cur],1,generator=g)[:,0]; x[:,t]=cur
    return x
def train(m,P,steps,lr,snap=False,ema=None):
    o=torch.optim.AdamW([p for p in m.parameters() if p.requires_grad],lr=lr); H={}
    m.train()
    for s in range(steps):
        if snap: H[s]={k:v.clone() for k,v in m.state_dict().items()}
        x=data(P,16,48); l=m(x,labels=x).loss; l.backward(); o.step(); o.zero_grad()
        if ema is not None:
            with torch.no_grad():
                for k,p in m.named_parameters(): ema[k].lerp_(p,0.1)
    print(type(m).__name__,steps,float(l.detach())); m.eval(); return H
kw=dict(vocab_size=V,hidden_size=64,intermediate_size=128,num_hidden_layers=4,num_attention_heads=4,num_key_value_heads=2,max_position_embeddings=256,bos_token_id=1,eos_token_id=2,pad_token_id=0)
torch.manual_seed(0)
out={}
def full(name,m):
    train(m,P1,200,3e-3)
    # RL-like phase
    ema={k:p.detach().clone() for k,p in m.named_parameters()}
    H=train(m,P2,8,5e-4,snap=True,ema=ema)
    torch.save(dict(model=m,hist=H,ema=ema),f"work/models/{name}.pt")
    return m
m=full("llama",LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False,**kw)))
full("qwen",Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True,**kw)))
full("mix",MixtralForCausalLM(MixtralConfig(num_local_experts=4,num_experts_per_tok=2,**{**kw,"num_hidden_layers":2})))
full("gpt2",GPT2LMHeadModel(GPT2Config(vocab_size=V,n_embd=64,n_layer=3,n_head=4,n_positions=256,bos_token_id=1,eos_token_id=2)))
base=copy.deepcopy(torch.load("work/models/llama.pt",weights_only=False)["model"])
p=get_peft_model(base,LoraConfig(r=8,lora_alpha=16,target_modules=["q_proj","v_proj","down_proj"],lora_dropout=0.0))
H=train(p,P2,30,1e-2)
H=train(p,P2,8,2e-3,snap=True)
torch.save(dict(model=p,hist=H),"work/models/peft.pt")
