"""Metrics and buffers that are filled through out= (fresh, right, transposed, sliced, wrong size with a warning) must keep contents, strides, versions and warnings."""
# PRELUDE
import warnings

m = net(3, 8, 16, 6)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
bank = torch.zeros(4, 12, 6)
buf = torch.empty(6, 12).t()
cm = torch.zeros(6, 6, dtype=torch.long)
vals, idx = torch.empty(12, 2), torch.empty(12, 2, dtype=torch.long)
for s in range(4):
    x, _ = batch(s, 12)
    y = torch.randint(0, 6, (12,), generator=torch.Generator().manual_seed(s))
    z = m(x)
    loss = F.cross_entropy(z, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        out = m(x)
        r = torch.softmax(out, 1, out=bank[s])
        torch.abs(out, out=buf)
        torch.topk(out, 2, dim=1, out=(vals, idx))
        cm.index_put_((y, out.argmax(1)), torch.ones_like(y), accumulate=True)
        mm = torch.mm(out.T, out, out=torch.empty(6, 6).t())
        tril = torch.tril(mm, out=torch.empty_like(mm))
        L = torch.linalg.cholesky(mm + torch.eye(6), out=torch.empty(6, 6))
        inv = torch.linalg.inv(mm + torch.eye(6), out=torch.empty(6, 6, dtype=torch.float32))
        qr = torch.linalg.qr(mm, out=(torch.empty(0), torch.empty(0)))
        sv = torch.linalg.svdvals(mm, out=torch.empty(0))
        cat = torch.cat([out, out], 1, out=torch.empty(24, 6).view(12, 12))
        st = torch.stack([out, buf], out=bank[:2].clone())
        sel = torch.index_select(out, 0, y, out=torch.empty(0))
        ga = torch.gather(out, 1, idx, out=vals)
        print(s, "is", r._base is bank, ga is vals, r.data_ptr() == bank[s].data_ptr(), bank._version, buf._version, vals._version, idx._version, cm._version, buf.stride())
        print(s, H(bank), H(buf), H(vals), H(idx), H(cm), H(mm), mm.stride(), mm._version, H(tril), H(L), L.stride(), L._version, H(inv), inv.stride(), inv._version)
        print(s, H(qr), qr[0].stride(), qr[1]._version, H(sv), sv._version, H(cat), cat._version, H(st), H(sel), sel._version)
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            small = torch.ones(3)
            torch.add(out[0], 1, out=small)
            print(s, "resized", small.shape, H(small), small._version, [str(i.message)[:90] for i in w])
    for label, f in (("grad out", lambda: torch.add(z.detach().requires_grad_(), 1, out=torch.empty(12, 6))), ("dtype", lambda: torch.add(out, 1, out=torch.empty(12, 6, dtype=torch.long))), ("overlap", lambda: torch.mul(out[:, :5], 2, out=out[:, 1:]))):
        try:
            f()
            print(s, label, "no error")
        except RuntimeError as e:
            print(s, label, str(e).splitlines()[0])
    print(s, M(m))
