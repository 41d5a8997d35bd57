"""Started without a stdin.

Source: https://github.com/python/cpython/issues/90650 (closed standard streams)
"""
# PRELUDE
print(sys.stdin, sys.__stdin__)
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
