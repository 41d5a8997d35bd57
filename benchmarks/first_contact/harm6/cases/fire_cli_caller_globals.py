"""fire.Fire() without a component: Fire looks at its caller's frame for the names of the script; commands with flags, chained calls, a usage error with its text and status."""
import fire
# PRELUDE
class Trainer:
    """Trains."""

    def __init__(self, lr=0.05, seed=0):
        self.m = net(seed)
        self.scope = W(self.m)
        self.opt = torch.optim.SGD(self.m.parameters(), lr)
        self.done = 0

    def fit(self, steps=3):
        print(train(self.m, self.opt, steps, self.done))
        self.done += steps
        return self

    def digest(self):
        return M(self.m)


def sweep(*lrs, steps: int = 2):
    for lr in lrs:
        yield str(lr), Trainer(lr).fit(steps).digest()


if __name__ == "__main__":
    rest = sys.argv[1:]
    for argv in (["Trainer", "--lr", "0.1", "-", "fit", "--steps", "4", "-", "fit", "2", "-", "digest"], ["sweep", "0.1", "0.01", "--steps=3"]):
        sys.argv[1:] = argv
        print("==", argv)
        fire.Fire()
    sys.argv[1:] = rest
    fire.Fire(name="case.py")
