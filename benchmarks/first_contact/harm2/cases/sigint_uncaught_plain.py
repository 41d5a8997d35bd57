"""Ctrl-C in a script without an optimizer (so that bare torch has not imported dynamo): Python dies by SIGINT itself, not with status 1.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/9286
"""
# PRELUDE
import signal
m = net()
for s in range(3):
    x, y = batch(s); loss = F.mse_loss(m(x), y); g = torch.autograd.grad(loss, list(m.parameters()))
    with torch.no_grad():
        for p, d in zip(m.parameters(), g): p -= 0.1 * d
    print(float(loss.detach()).hex(), flush=True)
signal.raise_signal(signal.SIGINT)
