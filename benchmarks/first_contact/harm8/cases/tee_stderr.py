# what: stdout and stderr replaced by a tee that writes to run.log, as many research scripts do; harmless nan in evaluation
# benign: yes
# PRELUDE
class Tee:
    def __init__(self, s, f): self.s, self.f = s, f
    def write(self, t): self.s.write(t); self.f.write(t)
    def flush(self): self.s.flush(); self.f.flush()
log = open("run.log", "a"); sys.stdout, sys.stderr = Tee(sys.stdout, log), Tee(sys.stderr, log)
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for e in range(2):
    print("epoch", e, train(model, opt, 3, 3 * e))
    with torch.no_grad(): print("std", model(batch(50)[0][:1]).std(0).mean().item())
print(M(model), R(), file=sys.stderr)
