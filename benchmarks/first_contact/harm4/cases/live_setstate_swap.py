"""A live model takes another's state by __setstate__, by pickle into the same object, and by swapping modules of two models between steps."""
# PRELUDE
import pickle

a, b = net(4), net(5)
W(a)
oa, ob = torch.optim.SGD(a.parameters(), 0.05), torch.optim.SGD(b.parameters(), 0.05)
print(train(a, oa, 3), train(b, ob, 2))
a[0], b[0] = b[0], a[0]
print(train(a, oa, 2, 3), M(a), M(b))
a.__setstate__(pickle.loads(pickle.dumps(b)).__dict__)
oa = torch.optim.SGD(a.parameters(), 0.05)
print(train(a, oa, 3, 5), M(a))
a.__dict__ = b.__dict__
print(H(a(batch(1)[0])) == H(b(batch(1)[0])), train(a, ob, 2, 8), M(b))
s = pickle.dumps(a)
print(H(pickle.loads(s)(batch(2)[0])))
a.__dict__ = pickle.loads(s).__dict__
print(train(a, torch.optim.SGD(a.parameters(), 0.05), 2, 10), M(a), R())
