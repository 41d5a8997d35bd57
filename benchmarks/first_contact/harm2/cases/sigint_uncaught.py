"""Ctrl-C at a line of the script's: KeyboardInterrupt's traceback, death by SIGINT.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/9286
"""
# PRELUDE
import signal
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 3), flush=True)
signal.raise_signal(signal.SIGINT)
print("not reached")
