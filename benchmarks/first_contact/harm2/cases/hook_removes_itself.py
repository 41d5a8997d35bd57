"""Hooks that remove themselves or others while they run, add hooks while running, and one that raises StopIteration which the script catches.

Source: https://github.com/ndif-team/nnsight/pull/652
"""
# PRELUDE
m = net(); W(m)
log = []
def once(mod, a, o):
    log.append("once"); h.remove()
    mod.register_forward_hook(lambda *_: log.append("later"))
h = m[0].register_forward_hook(once)
def stop(mod, a, o): raise StopIteration
opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(m, opt, 2), log)
hs = m[2].register_forward_hook(stop)
for s in range(2):
    try:
        m(batch(s)[0])
    except StopIteration as e:
        log.append(repr(e))
hs.remove()
def gh(g):
    log.append("g"); hg.remove()
hg = m[4].bias.register_hook(gh)
print(train(m, opt, 3, 5), log, M(m))
