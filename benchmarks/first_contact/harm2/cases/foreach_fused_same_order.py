"""AdamW as for-loop, foreach and fused, with amsgrad and maximize; state dicts bit for bit.

Source: https://github.com/pytorch/pytorch/pull/80315
"""
# PRELUDE
for kw in (dict(foreach=False), dict(foreach=True), dict(fused=True), dict(foreach=True, amsgrad=True, maximize=True)):
    m = net(); w = W(m)
    opt = torch.optim.AdamW(m.parameters(), 1e-2, weight_decay=0.1, **kw)
    print(kw, train(m, opt), M(m), H([list(s.values()) for s in opt.state.values()]))
