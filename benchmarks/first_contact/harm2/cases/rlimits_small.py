"""Few descriptors (40), no core, file size limit 200 kB (SIGXFSZ ignored by Python): errors the script catches, partial file.

Source: https://github.com/pytorch/pytorch/issues/165532
"""
# PRELUDE
import resource
m = net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2); print(train(m, opt, 2))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)); resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
print(train(m, opt, 3)); fs = []
try:
    while True: fs.append(open("/dev/null"))
except OSError as e: print(e.strerror, len(fs) + 3 + 0)
print(train(m, opt, 3)); [f.close() for f in fs]
try:
    with open("big", "wb", 0) as f: f.write(b"x" * 150_000); print(f.write(b"y" * 150_000)); f.write(b"z")
except OSError as e: print(e.strerror)
print(train(m, opt, 2), M(m))
