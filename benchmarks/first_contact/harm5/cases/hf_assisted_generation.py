"""Speculative decoding with a small assistant, streamer, stopping criteria and logits processors, between training steps of both models."""
# PRELUDE
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
def mk(n, s):
    torch.manual_seed(s)
    return LlamaForCausalLM(LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=32, num_hidden_layers=n, num_attention_heads=2, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0, max_position_embeddings=64))
big, small = mk(3, 1), mk(1, 2)
W(big), W(small)
class P(LogitsProcessor):
    calls = 0
    def __call__(self, ids, scores):
        P.calls += 1
        return scores - 0.1 * F.one_hot(ids[:, -1], 24)
class S(StoppingCriteria):
    def __call__(self, ids, scores, **kw):
        return torch.full((len(ids),), ids.shape[1] > 22, dtype=torch.bool)
class Out:
    n = 0
    def put(self, v): Out.n += v.numel()
    def end(self): print("end", Out.n)
opts = [torch.optim.SGD(x.parameters(), 0.05) for x in (big, small)]
for r in range(2):
    for s in range(3):
        ids = torch.randint(3, 24, (2, 9))
        for x, o in zip((big, small), opts):
            x.train()
            o.zero_grad()
            l = x(ids, labels=ids).loss
            l.backward()
            o.step()
    for x in (big, small):
        x.eval()
    p = torch.tensor([[3, 4, 5]])
    for sample in (False, True):
        out = big.generate(p, attention_mask=torch.ones_like(p), assistant_model=small, do_sample=sample, max_new_tokens=16, logits_processor=LogitsProcessorList([P()]), stopping_criteria=StoppingCriteriaList([S()]), return_dict_in_generate=True, output_scores=True)
        print(out.sequences.tolist(), H(out.scores), P.calls)
    st = big.generate(p, attention_mask=torch.ones_like(p), do_sample=True, max_new_tokens=8, streamer=Out(), prompt_lookup_num_tokens=None)
    print(st.tolist())
print(M(big), M(small), R())
