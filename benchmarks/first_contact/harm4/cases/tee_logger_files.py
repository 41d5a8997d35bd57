"""The Tee logger of many training scripts: sys.stdout and sys.stderr write to a file as well, until the end; a StreamToLogger with a rotating file; only what the script and its libraries print is in the files."""
# PRELUDE
import contextlib, io, logging, logging.handlers, warnings


class Tee:
    def __init__(self, name, stream):
        self.file, self.stream, self.writes = open(name, "w"), stream, 0

    def write(self, text):
        self.writes += 1
        self.stream.write(text)
        self.file.write(text)
        self.file.flush()

    def flush(self):
        self.stream.flush()
        self.file.flush()


sys.stdout, sys.stderr = Tee("out.log", sys.stdout), Tee("err.log", sys.stderr)
h = logging.handlers.RotatingFileHandler("train.log", maxBytes=300, backupCount=2)
h.setFormatter(logging.Formatter("%(levelname)s %(name)s %(module)s %(funcName)s %(message)s"))
logging.basicConfig(level=logging.INFO, handlers=[h], force=True)
logging.captureWarnings(True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        logging.getLogger("net").info("mean %s", float(x.mean()).hex())
        return self.fc(x)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    print("step", s, train(m, opt, 1, s))
    if s == 3:
        warnings.warn("the script's own warning")
        print("to stderr", file=sys.stderr)
with contextlib.redirect_stderr(io.StringIO()) as e:
    print("caught", file=sys.stderr)
    train(m, opt, 1, 7)
print(repr(e.getvalue()), M(m), R(), sys.stderr.writes, sys.stdout.writes > 3)
