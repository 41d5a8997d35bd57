"""A model that overrides named_modules, modules, parameters, named_parameters, children, train, eval, state_dict and apply in odd ways (one-shot generators, extra non-modules, counts): same counts, same results."""
# PRELUDE
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(1)
        self.asked = dict(parameters=0, state_dict=0, train=0)

    def forward(self, x):
        return self.body(x)

    def parameters(self, recurse=True):
        return (p for p in reversed(list(super().parameters(recurse))))

    def train(self, mode=True):
        self.asked["train"] += 1
        self.training = mode
        return None

    def eval(self):
        self.train(False)

    def modules(self):
        yield self
        yield from self.body

    def named_children(self):
        return iter([("body", self.body)])

    def state_dict(self, *a, **k):
        self.asked["state_dict"] += 1
        return {"mine." + n: v for n, v in super().state_dict(*a, **k).items()}

    def apply(self, fn):
        raise RuntimeError("do not apply")


m = Odd()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
print(train(m, opt, 3))
print(m.eval(), m.training, m.body.training, H(m(batch(1)[0])))
m.train()
print(train(m, opt, 3), m.asked, H(m.state_dict()), [tuple(p.shape) for p in m.parameters()][:2])
