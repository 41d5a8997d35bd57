"""An evaluation harness between training steps: rolling log-likelihoods with batches sorted by length, greedy match, prefix caches that are deep-copied and cropped, static and dynamic caches, eager and sdpa attention, output_attentions and hidden states."""
# PRELUDE
import copy
from transformers import LlamaConfig, LlamaForCausalLM, DynamicCache, StaticCache
def mk(att):
    torch.manual_seed(1)
    c = LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, pad_token_id=0, max_position_embeddings=64)
    c._attn_implementation = att
    return LlamaForCausalLM(c)
m = mk("eager")
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
reqs = [(torch.randint(1, 24, (random.randint(2, 8),)).tolist(), torch.randint(1, 24, (random.randint(1, 4),)).tolist()) for _ in range(9)]
def evaluate():
    m.eval()
    res = {}
    with torch.no_grad():
        for k in range(0, 9, 3):
            ch = sorted(range(9), key=lambda i: -len(sum(reqs[i], [])))[k:k + 3]
            seqs = [sum(reqs[i], [])[:-1] for i in ch]
            L_ = max(map(len, seqs))
            lg = F.log_softmax(m(torch.tensor([s + [0] * (L_ - len(s)) for s in seqs])).logits, -1)
            for i, s, l in zip(ch, seqs, lg):
                cont = torch.tensor(reqs[i][1])
                l = l[len(s) - len(cont):len(s)]
                res[i] = (float(l.gather(1, cont[:, None]).sum()).hex(), bool((l.argmax(-1) == cont).all()))
    m.train()
    return [res[i] for i in range(9)]
for ep in range(2):
    for s in range(3):
        t = torch.randint(1, 24, (3, 9))
        out = m(t, labels=t, output_attentions=True, output_hidden_states=True)
        loss = out.loss + 1e-3 * out.attentions[0].square().mean() + 1e-3 * out.hidden_states[1].square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(ep, H(evaluate()), float(loss.detach()).hex())
m.eval()
with torch.no_grad():
    pre = torch.randint(1, 24, (1, 6))
    c = DynamicCache()
    m(pre, past_key_values=c, use_cache=True)
    for j in range(3):
        cc = copy.deepcopy(c)
        o = m(torch.tensor([[j + 1, j + 2]]), past_key_values=cc, use_cache=True)
        cc.crop(-2)
        print(j, H(o.logits), cc.get_seq_length(), c.get_seq_length())
    print(m.generate(pre, max_new_tokens=6, do_sample=False, cache_implementation="static").tolist())
    print(m.generate(pre, max_new_tokens=6, do_sample=True, use_cache=False).tolist())
m2 = mk("sdpa")
m2.load_state_dict(m.state_dict())
W(m2)
print(H(m2(pre).logits.detach()), M(m), R())
