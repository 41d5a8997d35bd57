"""numpy and DLPack views of weights, inputs and outputs stay views of the same memory; read-only arrays; changes through them.

Source: https://github.com/pytorch/pytorch/issues/89693 (from_numpy memory)
"""
# PRELUDE
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
w = m[0].weight.detach().numpy(); d = torch.from_dlpack(np.from_dlpack(m[4].weight.detach())); a = np.zeros((6, 8), np.float32); x = torch.from_numpy(a)
for s in range(4):
    a[:] = batch(s)[0].numpy(); out = m(x); o = out.detach().numpy(); before = o.copy(); loss = out.square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(w.ctypes.data == m[0].weight.data_ptr(), d.data_ptr() == m[4].weight.data_ptr(), np.array_equal(before, o), H(w, d), float(loss.detach()).hex())
w[0, 0] = 5.0; print(float(m[0].weight[0, 0].detach()), train(m, opt, 1), M(m), x.data_ptr() == a.ctypes.data)
