"""weakref.finalize on a model, its optimizer and its layers, with and without atexit, among exit handlers: the order in which they tell at the end."""
# PRELUDE
import atexit, weakref

m = net(1)
opt = torch.optim.SGD(m.parameters(), 0.05)
dying = net(2)
W(m)
W(dying)
d_opt = torch.optim.SGD(dying.parameters(), 0.05)
fin = [weakref.finalize(m, print, "model", flush=True), weakref.finalize(m[0], print, "layer", flush=True), weakref.finalize(opt, print, "optimizer", flush=True)]
atexit.register(print, "handler one", flush=True)
quiet = weakref.finalize(m[2], print, "never at exit", flush=True)
quiet.atexit = False
gone = weakref.finalize(dying, print, "dropped model", flush=True)
weakref.finalize(m[4].weight, print, "weight", flush=True)
atexit.register(lambda: print("handler two", fin[0].alive, M(m), flush=True))
print(train(m, opt, 3), train(dying, d_opt, 3))
x, y = batch(0)
F.mse_loss(dying(x), y).backward()
d_opt.step()
d_opt.zero_grad()
del dying, d_opt
import gc

gc.collect()
print(gone.alive, [f.alive for f in fin], fin[0].peek()[1:])
print("end of script", flush=True)
