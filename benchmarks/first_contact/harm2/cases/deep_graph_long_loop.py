"""A graph of 60,000 nodes made outside the model and dropped, then backward through 20,000; no crash.

Source: https://github.com/pytorch/pytorch/issues/5534
"""
# PRELUDE
m = net(); W(m)
def chain(n):
    y = m(batch(0)[0]).sum()
    for _ in range(n):
        y = y + y * 1e-6
    return y
y = chain(60000); print(float(y).hex()); del y
y = chain(20000); y.backward(); print(float(y.detach()).hex(), M(m))
print(train(m, torch.optim.SGD(m.parameters(), 1e-4), 2))
