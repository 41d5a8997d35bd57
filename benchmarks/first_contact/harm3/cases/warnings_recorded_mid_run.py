"""warnings.catch_warnings(record=True) with 'always' around whole epochs, showwarning and formatwarning replaced, the once registry read: the list of warnings that training makes (category, text, line)."""
# PRELUDE
import warnings

m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
sch = torch.optim.lr_scheduler.StepLR(opt, 1)
with warnings.catch_warnings(record=True) as rec:
    warnings.simplefilter("always")
    for s in range(3):
        train(m, opt, 1, first=s)
        warnings.warn(f"step {s}", DeprecationWarning)
        F.mse_loss(m(batch(0)[0]), torch.zeros(4))
        torch.tensor(torch.ones(2))
        sch.step(s)
print([(w.category.__name__, str(w.message)[:60], w.lineno, os.path.basename(w.filename)) for w in rec])
shown = []
warnings.showwarning = lambda msg, cat, fn, ln, file=None, line=None: shown.append((cat.__name__, str(msg)[:40], ln))
warnings.simplefilter("once")
for s in range(3):
    train(m, opt, 1)
    warnings.warn("again")
warnings.simplefilter("error")
try:
    torch.tensor(torch.ones(2))
except UserWarning as e:
    print("raised", str(e)[:40])
print(shown, train(m, opt, 1), M(m))
