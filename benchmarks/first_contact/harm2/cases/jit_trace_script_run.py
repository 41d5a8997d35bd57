"""TorchScript trace and script of a trained model (graph text without source lines), training of the scripted one, optimize_for_inference, save and load.

Source: https://github.com/pytorch/pytorch/pull/36183
"""
# PRELUDE
import warnings; warnings.simplefilter("ignore")
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
t = torch.jit.trace(m, batch(0)[0]); s = torch.jit.script(m); print(t.code, s.code, t.inlined_graph.nodes and len(list(t.inlined_graph.nodes())))
print(H(t(batch(1)[0]), s(batch(1)[0]))); o2 = torch.optim.SGD(s.parameters(), 0.1); print(train(s, o2, 3), M(s))
s.save("s.pt"); k = torch.jit.load("s.pt"); print(H(k(batch(2)[0])), train(k, torch.optim.SGD(k.parameters(), 0.1), 2)); os.remove("s.pt")
f = torch.jit.optimize_for_inference(torch.jit.script(m.eval())); print(H(f(batch(2)[0])), train(m.train(), opt, 1), M(m))
