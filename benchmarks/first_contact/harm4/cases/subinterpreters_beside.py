"""Subinterpreters run plain Python code beside the inference of a trained model, in this thread and another (backward is impossible beside them in any program)."""
# PRELUDE
import threading
import _xxsubinterpreters as si

m = net(5)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
r, w = os.pipe()
print(train(m, opt, 2))
i = si.create()
si.run_string(i, f"import os, json\nos.write({w}, json.dumps([x * x for x in range(5)]).encode())")
print(os.read(r, 100))
with torch.no_grad():
    print(H(m(batch(2)[0])))
t = threading.Thread(target=si.run_string, args=(i, f"import os\nos.write({w}, b'again')"))
t.start()
with torch.no_grad():
    print(H(*[m(batch(k)[0]) for k in range(20)]))
t.join()
print(os.read(r, 100))
try:
    si.run_string(i, "raise KeyError('inside')")
except si.RunFailedError as e:
    print(str(e)[:60])
si.destroy(i)
with torch.no_grad():
    print(H(torch.nan_to_num(m(batch(7)[0]).log(), nan=0.0)))
print(M(m), len(si.list_all()), R())
