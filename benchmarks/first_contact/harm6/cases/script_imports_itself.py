"""The script imports itself as a module ("from case import Net", done so that pickles name case.Net): two copies of each class, pickles of either, a guard, __mp_main__ in a spawned child, importlib.reload of it."""
# PRELUDE
import importlib, io, multiprocessing as mp, pickle


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(5)

    def forward(self, x):
        return self.body(x)


def saved(thing):
    b = io.BytesIO()
    torch.save(thing, b)
    return H(b.getvalue())


def child(q, blob):
    m = pickle.loads(blob)
    q.put((__name__, type(m).__module__, M(m)))


loaded = globals().get("loaded", 0) + 1
if __name__ == "__main__":
    import case
    from case import Net as Other

    print(case.__name__, case.__file__ == os.path.abspath(__file__), Other is Net, case.loaded)
    for cls in (Net, Other):
        m = cls()
        W(m)
        opt = torch.optim.SGD(m.parameters(), 0.05)
        loss = train(m, opt, 3)
        blob = pickle.dumps(m)
        again = pickle.loads(blob)
        print(cls.__module__, loss, M(m), type(again) is cls, isinstance(again, case.Net), saved(m))
    q = mp.get_context("spawn").SimpleQueue()
    p = mp.get_context("spawn").Process(target=case.child, args=(q, blob))
    p.start()
    print(q.get())
    p.join()
    old = case.Net
    importlib.reload(case)
    print(case.loaded, old is case.Net, type(m) is old)
    try:
        pickle.dumps(m)
    except pickle.PicklingError as e:
        print(str(e).split(":")[0])
    print(train(m, opt, 2, 3), M(m), sys.modules["__main__"].__file__ == __file__)
