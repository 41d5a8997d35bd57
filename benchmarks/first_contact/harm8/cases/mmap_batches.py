# what: inputs by torch.frombuffer over mmap / bytearray; the map is closed, the bytearray resized, after each step
# PRELUDE
import mmap
model = net(); W(model)
opt = torch.optim.SGD(model.parameters(), lr=.1)
data = torch.stack([batch(s)[0] for s in range(4)]).numpy()
data.tofile("data.bin")
buf = bytearray()
def one(s):
    with open("data.bin", "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
        x = torch.frombuffer(m, dtype=torch.float32, count=48, offset=s * 48 * 4).reshape(6, 8)
        y = batch(s)[1]
        opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); opt.step(); v = float(l.detach()).hex()
        del x, l
        m.close()
    return v
for s in range(4): print(one(s))
def two(s):
    buf.extend(data[s].tobytes())
    x = torch.frombuffer(buf, dtype=torch.float32, offset=len(buf) - 192).reshape(6, 8)
    opt.zero_grad(); l = F.mse_loss(model(x), batch(s)[1]); l.backward(); opt.step()
    return float(l.detach()).hex()
for s in range(4): print(two(s))
print(M(model), len(buf), R())
