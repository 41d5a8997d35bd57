"""Scripts and libraries find the main script as the outermost frame, and know by the depth of the stack that they are at its top."""
# PRELUDE
import inspect, traceback, warnings

seen = []
warnings.showwarning = lambda message, category, filename, lineno, *_: seen.append((str(message), os.path.basename(filename), lineno > 0))
print(os.path.basename(inspect.stack()[-1].filename), len(inspect.stack()), inspect.stack()[-1].function)
try:
    print(sys._getframe(1).f_code.co_name)
except ValueError as e:
    print(e)
warnings.warn("at the top", stacklevel=2)
print(seen, [f.name for f in traceback.extract_stack()])


def caller_of_main():
    f = sys._getframe()
    while f.f_back:
        f = f.f_back
    return os.path.basename(f.f_code.co_filename), f.f_globals["__name__"]


print(caller_of_main())
m = net(2)
W(m)
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
