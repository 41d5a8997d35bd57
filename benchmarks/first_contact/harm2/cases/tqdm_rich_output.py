"""tqdm's bars with a fixed clock on stderr, redirected streams, a replaced sys.stdout, print hooks: the texts.

Source: https://github.com/Textualize/rich/issues/2855
"""
# PRELUDE
import io, contextlib, time
time.time = lambda: 0.0
import tqdm
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for s in tqdm.tqdm(range(3), bar_format="{desc}{n_fmt}/{total_fmt}", mininterval=0, desc="t"): r = train(m, opt, 1, s)
sys.stderr.write("\n"); o = io.StringIO()
with contextlib.redirect_stdout(o), contextlib.redirect_stderr(o): print("in", train(m, opt, 2)); sys.stderr.write("err\n")
print(repr(o.getvalue()))
class Tee:
    def __init__(self, s): self.s, self.n = s, 0
    def write(self, t): self.n += len(t); return self.s.write(t)
    def flush(self): self.s.flush()
sys.stdout = t = Tee(sys.stdout); sys.stderr = t2 = Tee(sys.stderr)
print(train(m, opt, 2), M(m)); sys.stdout = t.s; print(t.n, t2.n, r)
