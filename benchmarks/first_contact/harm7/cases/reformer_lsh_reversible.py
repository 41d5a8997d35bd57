"""A Reformer whose reversible layers run forward again in backward with saved random states must keep hashes, buckets, dropout, gradients and random states."""
# PRELUDE
import itertools

from transformers import ReformerConfig, ReformerModelWithLMHead

seeds = itertools.count(100)


def seed():  # Reformer draws its seeds by torch.seed()
    n = next(seeds)
    torch.manual_seed(n)
    return n


torch.seed = seed

torch.manual_seed(0)
c = ReformerConfig(attention_head_size=8, attn_layers=["local", "lsh"], hidden_size=16, num_attention_heads=2, feed_forward_size=32, vocab_size=40, axial_pos_shape=(4, 8), axial_pos_embds_dim=(6, 10),
                   num_buckets=4, num_hashes=2, lsh_attn_chunk_length=8, local_attn_chunk_length=8, max_position_embeddings=32, is_decoder=True, hash_seed=None, lsh_attention_probs_dropout_prob=0.1,
                   local_attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1, chunk_size_lm_head=8, chunk_size_feed_forward=8)
m = ReformerModelWithLMHead(c)
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(4):
    ids = torch.randint(0, 40, (2, 32), generator=torch.Generator().manual_seed(s))
    mask = torch.ones_like(ids)
    mask[0, 24:] = 0
    m.train()
    out = m(ids, attention_mask=mask, labels=ids)
    opt.zero_grad()
    print(s, "before", R(), out.loss.grad_fn.name())
    out.loss.backward()
    opt.step()
    print(s, float(out.loss.detach()).hex(), M(m), R())
    m.eval()
    with torch.no_grad():
        o = m(ids[:, :24], attention_mask=mask[:, :24], num_hashes=3)
    print(s, H(o.logits), o.logits.stride(), R())
print([(n, p.grad is None) for n, p in m.named_parameters() if p.grad is None])
