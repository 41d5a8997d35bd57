"""XLNet trained with permutation masks and memories carried over segments (detached, trimmed, mutated by the script) must keep mems, gradients and perplexities."""
# PRELUDE
from transformers import XLNetConfig, XLNetLMHeadModel

torch.manual_seed(0)
m = XLNetLMHeadModel(XLNetConfig(vocab_size=30, d_model=16, n_layer=2, n_head=2, d_inner=32, mem_len=6, reuse_len=3, attn_type="bi", dropout=0.1))
W(m)
opt = torch.optim.Adam(m.parameters(), 2e-3)
mems = None
g = torch.Generator().manual_seed(1)
stream = torch.randint(3, 30, (2, 60), generator=g)
for s in range(6):
    seg = stream[:, s * 8 : s * 8 + 8]
    perm = torch.zeros(2, 8, 8)
    order = torch.stack([torch.randperm(8, generator=g) for _ in range(2)])
    perm = (order[:, None] >= order[:, :, None]).float()
    tgt = torch.zeros(2, 2, 8)
    last = order.argsort(1)[:, -2:]
    tgt.scatter_(2, last[..., None], 1.0)
    out = m(seg, perm_mask=perm, target_mapping=tgt, mems=mems, use_mems=True)
    loss = F.cross_entropy(out.logits.flatten(0, 1), seg.gather(1, last).flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), M(m), [(H(x), tuple(x.shape), x.requires_grad, x._version, x.stride()) for x in out.mems], R())
    mems = [x.detach() for x in out.mems]
    if s == 3:
        mems[0].mul_(0.5)
        mems[1][-1].zero_()
    m.eval()
    with torch.no_grad():
        e = m(seg, mems=mems, use_mems=True)
        print(s, "ppl", float(F.cross_entropy(e.logits.flatten(0, 1), seg.flatten()).exp()).hex(), H(e.logits), e.mems is mems, [H(x) for x in e.mems])
    m.train()
