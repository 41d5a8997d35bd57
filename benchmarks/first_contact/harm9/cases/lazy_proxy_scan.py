"""A module-level lazy settings object (Django's SimpleLazyObject, werkzeug's LocalProxy): whoever asks for its class evaluates it."""
# PRELUDE
from werkzeug.local import LocalProxy, LocalStack
seed(4)
made = []


class Lazy:
    def __init__(self, f):
        self.__dict__["f"] = f
        self.__dict__["w"] = None

    def _get(self):
        if self.__dict__["w"] is None:
            made.append(1)
            self.__dict__["w"] = self.__dict__["f"]()
        return self.__dict__["w"]

    __class__ = property(lambda self: type(self._get()))

    def __getattr__(self, k):
        return getattr(self._get(), k)


def build():
    print("settings are read now")
    return nn.Linear(3, 3)  # draws random numbers


settings = Lazy(build)
calls = []
g = LocalStack()
request = g()  # unbound: any look at it raises RuntimeError
counted = LocalProxy(lambda: calls.append(1) or 5)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
net.request = request if False else None
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
for step in range(20):
    loss = F.mse_loss(net(torch.randn(8, 4)), torch.zeros(8, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    print(step, dig(loss), len(made), len(calls))
end(net, opt)
print("made", len(made), "calls", len(calls))
settings.weight
print("made", len(made))
