"""The forum's snippet against leaks: each step counts all tensors that gc knows, touching each object's .data; the count does not grow; gc with threshold 1."""
# PRELUDE
import gc, warnings

warnings.filterwarnings("ignore")
m = net(5)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)


def census():
    n = 0
    for o in gc.get_objects():
        try:
            if torch.is_tensor(o) or (hasattr(o, "data") and torch.is_tensor(o.data)):
                n += 1
        except Exception:
            pass
    return n


counts = []
for s in range(12):
    train(m, opt, 1, s)
    gc.collect()
    counts.append(census())
print([b - a for a, b in zip(counts[5:], counts[6:])], M(m))
old = gc.get_threshold()
gc.set_threshold(1, 1, 1)
print(train(m, opt, 3, 12))
gc.set_threshold(*old)
gc.disable()
print(train(m, opt, 3, 15), gc.isenabled())
gc.enable()
print(gc.get_threshold(), gc.garbage, M(m), R())
