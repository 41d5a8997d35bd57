# what: modules whose bool, len, iter and equality raise or surprise, trained
# PRELUDE
class Odd(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(8, 8)
    def __bool__(self): raise TypeError("no truth here")
    def __len__(self): return 0
    def __iter__(self): raise TypeError("not iterable")
    def __contains__(self, x): raise TypeError("no in")
    def __eq__(self, o): raise TypeError("no equality")
    __hash__ = nn.Module.__hash__
    def __repr__(self): raise RuntimeError("no repr")
    def forward(self, x): return self.f(x).tanh()
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.e = Odd(), Odd(), nn.Sequential(); self.o = nn.Linear(8, 4)
    def forward(self, x): return self.o(self.e(self.b(self.a(x))))
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
print(train(m, opt, 4), M(m), R())
with torch.no_grad(): z = m.a(batch(3)[0] * float("inf")); print(z.isnan().any().item(), R())
