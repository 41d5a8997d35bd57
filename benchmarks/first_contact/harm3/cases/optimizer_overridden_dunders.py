"""Optimizers that override __getattribute__, param_groups (a property with a count), state (plain dict), __setstate__, zero_grad (fills with zeros), step that returns values, a generator-like multi-step, foreign objects in groups."""
# PRELUDE
count = dict(groups=0)


class A(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr, tag=object, fn=abs))

    @property
    def param_groups(self):
        count["groups"] += 1
        return self.__dict__["_g"]

    @param_groups.setter
    def param_groups(self, v):
        self.__dict__["_g"] = v

    def zero_grad(self, set_to_none=False):
        for g in self.__dict__["_g"]:
            for p in g["params"]:
                p.grad = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure=None, *, scale=1.0):
        n = 0
        for g in self.__dict__["_g"]:
            for p in g["params"]:
                p.sub_(p.grad, alpha=g["lr"] * scale)
                self.state.setdefault(p, {"n": 0})["n"] += 1
                n += 1
        self.state["text"] = {"steps": n}
        return n, "done"


m = net(1)
W(m)
opt = A(m.parameters(), 0.05)
before = count["groups"]
x, t = batch(0)
ret = []
for s in range(3):
    opt.zero_grad()
    F.mse_loss(m(x), t).backward()
    ret.append(opt.step(scale=0.5))
print(ret, sorted(str(type(k).__name__) for k in opt.state), M(m))


class B(torch.optim.Adam):
    def __getattribute__(self, n):
        if n == "secret":
            raise KeyError("no")
        return super().__getattribute__(n)

    def __setstate__(self, s):
        super().__setstate__(s)
        self.was = "set"

    def __eq__(self, o):
        raise RuntimeError("not comparable")

    __hash__ = None

    def __len__(self):
        return 0


m = net(2)
W(m)
opt = B(m.parameters(), 1e-2)
print(train(m, opt, 4), M(m), bool(opt))
import pickle

c = pickle.loads(pickle.dumps(opt))
print(c.was, H(c.state_dict()["state"]), opt.step.__name__, type(opt).step.__qualname__)
