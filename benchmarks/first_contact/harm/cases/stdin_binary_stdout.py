r"""Lines of stdin decide the batches; binary output to stdout.buffer and to descriptor 1; no text in between.

source: cirosantilli/linux-kernel-module-cheat#48 (pipes)
meta: {"stdin": "3\n1\n2\nüß\n"}
"""
import os
import sys
import numpy as np
import torch
from fcw import mlp, seed, watch

seed(93)
model = mlp(4, 8, 2)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
first = input()
for line in [first, *sys.stdin]:
    n = int(line) if line.strip().isdigit() else len(line.encode())
    out = model(torch.randn(n, 4))
    opt.zero_grad()
    out.square().mean().backward()
    opt.step()
    sys.stdout.buffer.write(out.detach().numpy().tobytes())
    sys.stdout.buffer.flush()
    os.write(1, np.array([p.grad.sum().item() for p in model.parameters()]).tobytes())
sys.stdout.write("\x00\x1b[31mred\x1b[0m\r\n")
print(sys.stdin.read() == "", sys.stdout.encoding, sys.stdout.line_buffering, sys.stdin.isatty(), sys.stdout.isatty())
