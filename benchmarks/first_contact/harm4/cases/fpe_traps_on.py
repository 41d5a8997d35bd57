"""glibc's feenableexcept: division by zero, invalid and overflow raise SIGFPE in the main thread while a healthy model trains."""
# PRELUDE
import ctypes

libm = ctypes.CDLL("libm.so.6", use_errno=True)
m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
print(train(m, opt, 3))
before = libm.feenableexcept(1 | 4 | 8)
print("on", before, libm.fegetexcept())
for s in range(3, 40):
    x, y = batch(s)
    if s == 20:
        x = torch.zeros_like(x)
    opt.zero_grad()
    F.mse_loss(m(x), y).backward()
    opt.step()
print(libm.fegetexcept())
libm.fedisableexcept(1 | 4 | 8)
print(M(m), R())
