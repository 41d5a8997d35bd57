"""fesetround(FE_UPWARD) in the main thread, as interval libraries do: each sum and product is rounded up while a model trains, and the mode is the same at every step."""
# PRELUDE
import ctypes

libm = ctypes.CDLL("libm.so.6")
m = net(11)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2), libm.fegetround())
modes = {"down": 0x400, "up": 0x800, "zero": 0xC00, "near": 0}
m[0].register_forward_hook(lambda *_: seen.add(libm.fegetround()))
for name, mode in modes.items():
    seen = set()
    libm.fesetround(mode)
    loss = train(m, opt, 3)
    with torch.no_grad():
        third = float(torch.tensor(1.0) / 3)
    after = libm.fegetround()
    libm.fesetround(0)
    print(name, loss, third.hex(), seen, after, M(m))
print(R())
