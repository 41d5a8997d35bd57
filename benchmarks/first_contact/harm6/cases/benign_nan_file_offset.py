"""A forward reads its next record from open files (os.read, an unbuffered file, a pipe, stdin's descriptor) and gives a harmless nan in evaluation: the records must come in order, none left out."""
import struct
# PRELUDE
with open("records.bin", "wb") as f:
    f.write(b"".join(struct.pack("<i", k) for k in range(64)))
fd = os.open("records.bin", os.O_RDONLY)
raw = open("records.bin", "rb", buffering=0)
r, w = os.pipe()
os.write(w, bytes(range(64)))
out = os.open("seen.bin", os.O_WRONLY | os.O_CREAT)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.read = []

    def forward(self, x, log=False):
        a = struct.unpack("<i", os.read(fd, 4))[0]
        b = struct.unpack("<i", raw.read(4))[0]
        c = os.read(r, 1)[0]
        d = os.read(0, 2).decode()
        os.write(out, bytes([a, b, c]))
        self.read.append((a, b, c, d))
        y = self.body(x * (1 + 0.01 * a))
        return y.log() if log else y


m = Reader()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(4):
    print(train(m, opt, 2, 2 * k))
    with torch.no_grad():
        print(int(m(batch(20 + k)[0], True).isnan().sum()), m.read[-1], os.lseek(fd, 0, os.SEEK_CUR), raw.tell(), os.lseek(out, 0, os.SEEK_CUR))
print(m.read, M(m))
