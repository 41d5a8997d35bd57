"""The last epoch, evaluation and saving are done in an atexit function, another trains in a module's __del__ at the end; their order, prints and files."""
# PRELUDE
import atexit

m = net(1)
opt = torch.optim.SGD(m.parameters(), 0.05)


def first():
    print("first registered, runs last", M(m), flush=True)


atexit.register(first)
W(m)


@atexit.register
def last():
    print("atexit", train(m, opt, 3, first=4), flush=True)
    torch.save(m.state_dict(), "final.pt")
    with torch.no_grad():
        print(H(m(batch(0)[0])), R(), flush=True)


print(train(m, opt, 4))


class Keep:
    def __init__(self):
        self.n = net(2)

    def __del__(self):
        print("del", H(self.n(torch.ones(1, 8))), flush=True)


k = Keep()
atexit.register(lambda: globals().pop("k"))
