"""Outputs of odd structure: one that contains itself, an endless iterator, a lazy mapping that counts reads, dataclasses, nested 300 deep, None and text."""
# PRELUDE
import dataclasses, collections, itertools
seed(37)
reads = []


class LazyMap(collections.abc.Mapping):
    def __init__(self, d):
        self.d = d

    def __getitem__(self, k):
        reads.append(k)
        return self.d[k]() if callable(self.d[k]) and not isinstance(self.d[k], torch.Tensor) else self.d[k]

    def __iter__(self):
        reads.append("iter")
        return iter(self.d)

    def __len__(self):
        return len(self.d)


@dataclasses.dataclass
class Out:
    loss: torch.Tensor
    extra: object = None
    made: int = 0

    def __post_init__(self):
        reads.append("post")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x, kind):
        h = self.b(self.a(x).relu())
        if kind == "self":
            o = {"h": h}
            o["me"] = o
            o["list"] = [o, h]
            return o
        if kind == "endless":
            return h, itertools.count(), iter([h, h])
        if kind == "lazy":
            return LazyMap({"h": h, "costly": lambda: torch.randn(2)})
        if kind == "data":
            return Out(h, extra=["text", None, b"x", {1, 2}])
        if kind == "deep":
            o = h
            for _ in range(300):
                o = [o]
            return o
        return None, "text", h, 3


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step, kind in enumerate(["self", "endless", "lazy", "data", "deep", "none"] * 3):
    out = net(torch.randn(8, 4), kind)
    if kind == "self":
        h = out["me"]["me"]["h"]
    elif kind == "endless":
        print(next(out[1]), len(list(out[2])))
        h = out[0]
    elif kind == "lazy":
        h = out["h"]
    elif kind == "data":
        h = out.loss
    elif kind == "deep":
        while isinstance(out, list):
            out = out[0]
        h = out
    else:
        h = out[2]
    loss = h.pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, kind, dig(loss), len(reads))
print(dig(reads))
end(net, opt)
