"""torch-lr-finder: model and optimizer states go to a temporary file, the rate grows until the loss diverges, then all comes back; the real training after it."""
# PRELUDE
import copy, tempfile

m = net(11)
W(m, on_nonfinite="warn")
opt = torch.optim.SGD(m.parameters(), 1e-4, momentum=0.9)
print(train(m, opt, 2))
with tempfile.TemporaryDirectory() as d:
    f = os.path.join(d, "state.pt")
    torch.save({"m": m.state_dict(), "o": opt.state_dict()}, f)
    mem = copy.deepcopy(m.state_dict())
    state = torch.get_rng_state()
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 1.6 ** k)
    best, history = None, []
    for s in range(30):
        loss = float.fromhex(train(m, opt, 1, s))
        sched.step()
        history.append((opt.param_groups[0]["lr"], loss))
        best = loss if best is None else min(best, loss)
        if loss > 5 * best:
            print("stopped", s)
            break
    saved = torch.load(f)
    m.load_state_dict(saved["m"])
    opt.load_state_dict(saved["o"])
    torch.set_rng_state(state)
print(H(history), H(mem) == H(m.state_dict()), len(opt.state))
for g in opt.param_groups:
    g["lr"] = 0.01
print(train(m, opt, 5), M(m), H([s["momentum_buffer"] for s in opt.state.values()]), R())
