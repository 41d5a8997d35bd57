# what: os.fork by the script itself for evaluations in children; os.wait gives its own children only; harmless nan in between
# benign: yes
# PRELUDE
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
class Ev(nn.Module):
    def __init__(self, m): super().__init__(); self.m = m
    def forward(self, x): o = self.m(x); return (o - o).sum() / (o - o).sum() + o
ev = Ev(model)
for e in range(3):
    print(train(model, opt, 3, 3 * e)); kids = []; sys.stdout.flush()
    with torch.no_grad(): print(ev(batch(60)[0]).isnan().all().item())
    sys.stdout.flush()
    for k in range(2):
        pid = os.fork()
        if pid == 0:
            with torch.no_grad(): v = float(model(batch(70 + k)[0]).sum())
            open(f"eval{e}{k}", "w").write(v.hex()); os._exit(k + 3)
        kids.append(pid)
    with torch.no_grad(): print(ev(batch(61)[0]).isnan().all().item())
    got = [os.wait() for _ in kids]
    print(sorted((p in kids, os.waitstatus_to_exitcode(s)) for p, s in got))
    try: os.wait(); print("another child")
    except ChildProcessError: print("none left")
print(M(model), R())
