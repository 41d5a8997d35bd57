"""sys.exit(300) in a gradient hook (torch turns it as it does), caught exit codes of many kinds, then exit with 300 & 255.

Source: https://github.com/pytorch/pytorch/issues/46088
"""
# PRELUDE
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for code in (None, 0, 7, "text", (1, 2), -1):
    h = m[2].weight.register_hook(lambda g: sys.exit(code))
    try:
        train(m, opt, 1)
    except BaseException as e:
        print(type(e).__name__, repr(e)[:40], getattr(e, "code", "-"))
    h.remove(); print(train(m, opt, 1))
def stop(*a): sys.exit(300)
opt.register_step_post_hook(stop); train(m, opt, 1)
