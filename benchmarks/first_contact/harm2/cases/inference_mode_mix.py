"""Inference mode, no_grad and eval between training steps; is_inference flags, errors when inference tensors are saved for backward.

Source: https://github.com/pytorch/pytorch/pull/53342
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    print(train(m, opt, 1, s))
    with torch.inference_mode():
        o = m.eval()(batch(9)[0]); m.train()
    print(o.is_inference(), o.requires_grad, H(o))
    try:
        (o * m[4].weight.sum()).sum().backward()
    except RuntimeError as e:
        print(str(e)[:50])
    with torch.no_grad():
        print(m(batch(8)[0]).requires_grad, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    print(H(o.clone() + 1))
@torch.inference_mode()
def ev(): return float(m(batch(3)[0]).sum()).hex()
print(ev(), M(m))
