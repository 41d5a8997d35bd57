"""stdout on a full device: the flush at the end fails, status 120 as Python gives.

Source: https://github.com/Comfy-Org/comfy-cli/pull/615
"""
# PRELUDE
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
