"""C code (ctypes) reads gradients and writes weights by address, so that no version counter moves; an optimizer without torch."""
# PRELUDE
import ctypes

with open("sgd.c", "w") as f:
    f.write("void step(float *w, const float *g, long n, float lr) { for (long i = 0; i < n; i++) w[i] -= lr * g[i]; }\n")
import subprocess

subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "sgd.so", "sgd.c"], check=True)
lib = ctypes.CDLL("./sgd.so")
lib.step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_float]
m = net(6)
W(m)
versions = [p._version for p in m.parameters()]
for s in range(8):
    x, y = batch(s)
    loss = F.mse_loss(m(x), y)
    for p in m.parameters():
        p.grad = None
    loss.backward()
    for p in m.parameters():
        lib.step(p.data_ptr(), p.grad.data_ptr(), p.numel(), 0.05)
    print(s, float(loss.detach()).hex())
    ctypes.memset(m[0].bias.data_ptr(), 0, 8)
print([p._version for p in m.parameters()] == versions, M(m), R())
