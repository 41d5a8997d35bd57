"""Parameters of the script's own class (subclass of nn.Parameter with extra attributes and __torch_function__ disabled), nn.Buffer, UninitializedParameter, with __deepcopy__ and pickles of their own."""
# PRELUDE
class P(nn.Parameter):
    def __new__(cls, data, tag="t", requires_grad=True):
        o = super().__new__(cls, data, requires_grad)
        o.tag = tag
        return o

    def __deepcopy__(self, memo):
        r = P(self.data.clone(), self.tag + "'", self.requires_grad)
        memo[id(self)] = r
        return r

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, proto):
        return make, (self.data, self.tag)


def make(d, t):
    return P(d, t)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = P(torch.randn(8, 4) * 0.3, "a"), P(torch.zeros(4), "b")
        self.k = nn.Buffer(torch.ones(4))
        self.z = nn.parameter.UninitializedParameter()

    def forward(self, x):
        if isinstance(self.z, nn.parameter.UninitializedParameter):
            with torch.no_grad():
                self.z.materialize((4,))
                self.z.fill_(0.5)
        return (x @ self.a + self.b) * self.k + self.z


m = Net()
W(m)
m(batch(0)[0])
opt = torch.optim.AdamW(m.parameters(), 1e-2)
print(train(m, opt, 4), [(n, type(p).__name__, getattr(p, "tag", None)) for n, p in m.named_parameters()], M(m))
import copy
import io

c = copy.deepcopy(m)
print([getattr(p, "tag", None) for p in c.parameters()], train(c, torch.optim.AdamW(c.parameters(), 1e-2), 2))
f = io.BytesIO()
torch.save(m, f)
f.seek(0)
l = torch.load(f, weights_only=False)
print([getattr(p, "tag", None) for p in l.parameters()], M(l), H(np.frombuffer(f.getvalue(), np.uint8)))
