"""ExceptionGroup and notes: TaskGroup of trainings, except*, notes added by hooks on the way out, __cause__, __context__ and __suppress_context__ of what a forward raises, and an uncaught group at the end."""
# PRELUDE
import asyncio, contextlib


class Fails(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.fc, self.how = nn.Linear(8, 4), how

    def forward(self, x):
        y = self.fc(x)
        if self.how == "cause":
            try:
                [][1]
            except IndexError as e:
                raise ValueError("caused") from e
        if self.how == "context":
            try:
                {}[1]
            except KeyError:
                raise TypeError("in context")
        if self.how == "none":
            try:
                1 / 0
            except ZeroDivisionError:
                raise OSError(5, "suppressed") from None
        if self.how == "note":
            e = RuntimeError("noted")
            e.add_note("from forward")
            raise e
        if self.how == "stop":
            raise StopIteration(7)
        if self.how == "group":
            raise ExceptionGroup("inside", [ValueError(1), ExceptionGroup("deep", [KeyError("k")])])
        return y


class Outer(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.inner = Fails(how)

    def forward(self, x):
        try:
            return self.inner(x)
        except Exception as e:
            e.add_note("through outer")
            raise


for how in ("cause", "context", "none", "note", "stop", "group", "fine"):
    m = Outer(how)
    seen = []
    m.inner.register_forward_hook(lambda mod, a, o: seen.append(o is None), always_call=True)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    try:
        print(how, train(m, opt, 2), seen)
    except Exception as e:
        print(how, type(e).__name__, e.args, getattr(e, "__notes__", None), repr(e.__cause__), repr(e.__context__), e.__suppress_context__, seen)


async def fit(how, n):
    m = Outer(how)
    W(m)
    await asyncio.sleep(1.0 * n)
    return train(m, torch.optim.SGD(m.parameters(), 0.05), 2)


async def main():
    async with asyncio.TaskGroup() as g:
        ts = [g.create_task(fit(h, i)) for i, h in enumerate(("fine", "cause", "note"))]

try:
    asyncio.run(main())
except* ValueError as g:
    print("values", [str(e) for e in g.exceptions])
except* RuntimeError as g:
    print("runtime", [str(e) for e in g.exceptions])


def gen(m):
    while True:
        yield m(batch(0)[0])


try:
    next(gen(Outer("stop")))
except RuntimeError as e:
    print(e, repr(e.__cause__))
with contextlib.suppress(OSError):
    Outer("none")(batch(0)[0])
raise SystemExit(ExceptionGroup("text of the exit", [ValueError("x")]))
