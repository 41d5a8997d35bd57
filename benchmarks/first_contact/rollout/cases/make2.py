# a second llama whose text depends on the token 4 back, so that positions matter
import torch, copy
from transformers import LlamaConfig, LlamaForCausalLM, GPT2Config, GPT2LMHeadModel
torch.set_num_threads(1); V=256
g=torch.Generator().manual_seed(7)
def P(seed): return (torch.randn(V,V,generator=torch.Generator().manual_seed(seed))*3.0)
def data(A,n,l):
    x=torch.randint(4,V,(n,l),generator=g); x[:,0]=1
    for t in range(5,l): x[:,t]=torch.multinomial(A[x[:,t-4]].softmax(-1),1,generator=g)[:,0]
    return x
kw=dict(vocab_size=V,hidden_size=64,intermediate_size=128,num_hidden_layers=3,num_attention_heads=4,num_key_value_heads=2,max_position_embeddings=256,bos_token_id=1,eos_token_id=2,pad_token_id=0)
torch.manual_seed(0)
A,B=P(1),P(2)
for name,m in (("llama4",LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False,**kw))),("gpt2b",GPT2LMHeadModel(GPT2Config(vocab_size=V,n_embd=64,n_layer=3,n_head=4,n_positions=128,bos_token_id=1,eos_token_id=2,resid_pdrop=0.1,attn_pdrop=0.1,embd_pdrop=0.0)))):
    o=torch.optim.AdamW(m.parameters(),lr=4e-3); m.train(); H={}
    for s in range(500):
        if s==490:
            for q in o.param_groups: q["lr"]=5e-4
        if s>=490: H[s-490]={k:v.clone() for k,v in m.state_dict().items()}
        x=data(A if s<490 else B,16,48); l=m(x,labels=x).loss; l.backward(); o.step(); o.zero_grad()
        if s%100==0 or s==489: print(name,s,float(l),flush=True)
    torch.save(dict(model=m.eval(),hist=H,ema=None),f"work/models/{name}.pt")
