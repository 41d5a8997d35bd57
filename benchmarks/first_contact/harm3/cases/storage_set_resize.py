"""set_() of weights onto one flat storage, storages resized to zero and back between steps (weights freed and filled again), untyped storages shared and copied, data_ptr kept."""
# PRELUDE
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
flat = torch.cat([p.detach().reshape(-1) for p in m.parameters()])
off = 0
with torch.no_grad():
    for p in m.parameters():
        p.set_(flat.untyped_storage(), off, p.shape, p.stride())
        off += p.numel()
print(train(m, opt, 2), H(flat.clone()), len({p.untyped_storage().data_ptr() for p in m.parameters()}))
for s in range(3):
    opt.zero_grad()
    keep = flat.clone()
    n = flat.untyped_storage().nbytes()
    flat.untyped_storage().resize_(0)
    assert m[0].weight.untyped_storage().nbytes() == 0
    flat.untyped_storage().resize_(n)
    flat.copy_(keep)
    x, t = batch(s)
    out = m(x)
    h = m[0](x)
    F.mse_loss(out, t).backward()
    h.untyped_storage().resize_(0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    st = out.untyped_storage()
    st.resize_(0)
    print(s, H(flat.clone()), out.shape, st.nbytes())
print(train(m, opt, 1), H(flat.clone()), M(m))
