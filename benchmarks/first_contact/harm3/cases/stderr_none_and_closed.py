"""sys.stderr is None (pythonw), then a closed file, then an object whose write raises, while training; the end of the run with it; stdout and status 0."""
# PRELUDE
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
sys.stderr = None
print(train(m, opt, 2))
f = open(os.devnull, "w")
f.close()
sys.stderr = f
print(train(m, opt, 2, first=2))


class Bad:
    def write(self, s):
        raise OSError(5, "Input/output error")

    def flush(self):
        raise ValueError("I/O operation on closed file")

    def isatty(self):
        raise AttributeError("isatty")

    encoding = None


sys.stderr = sys.__stderr__ = Bad()
print(train(m, opt, 2, first=4), M(m))
