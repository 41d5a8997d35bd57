"""The script comes from bash's process substitution, a pipe that can be read once; it ends with an exception of its own."""
# PRELUDE
print(sys.argv[1:], __file__.startswith("/dev/fd/"), __name__, os.path.basename(sys.path[0]))
m = net(4)
W(m)
opt = torch.optim.SGD(m.parameters(), float(sys.argv[2]))
print(train(m, opt, 5), M(m))


def last():
    raise LookupError("no more data")


last()
