"""Sparse COO and CSR adjacencies in losses, label propagation, sampled products and sparse softmax: coalesced flags, index bits, gradients, layouts and warnings must stay the same."""
# PRELUDE
import warnings

n = 12
g0 = torch.Generator().manual_seed(0)
ei = torch.randint(0, n, (2, 30), generator=g0)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    A = torch.sparse_coo_tensor(torch.cat([ei, ei.flip(0)], 1), torch.ones(60), (n, n))
    print("A", A.is_coalesced(), A._nnz(), A._version)
    A = A.coalesce()
    deg = torch.sparse.sum(A, 1).to_dense()
    csr = A.to_sparse_csr()
    m = net(2, 6, 16, 5)
    W(m)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    x = torch.randn(n, 6, generator=g0)
    ew = nn.Parameter(torch.ones(A._nnz()))
    opt.add_param_group({"params": [ew], "lr": 0.1})
    for s in range(5):
        z = m(torch.sparse.mm(A, x) / deg.clamp(min=1)[:, None])
        L = torch.sparse_coo_tensor(A.indices(), ew, (n, n), is_coalesced=True)
        lap = (z * (deg[:, None] * z - torch.sparse.mm(L, z))).sum() / n
        att = torch.sparse.softmax(torch.sparse_coo_tensor(A.indices(), (z[A.indices()[0]] * z[A.indices()[1]]).sum(1), (n, n)), 1)
        rec = torch.sparse.sum(att * att) if False else torch.sparse.mm(att, z).square().mean()
        reg = torch.sparse.log_softmax(L.clone(), 1).to_dense().sum() * 1e-3
        loss = lap + rec + reg + (torch.sparse.mm(L, torch.sparse.mm(L.transpose(0, 1), z))).mean() + torch.sparse.addmm(z, L, z, beta=0.5, alpha=0.1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(s, float(loss.detach()).hex(), M(m), H(ew), H(ew.grad), L.is_coalesced(), att.is_coalesced(), att.grad_fn.name(), ew.grad.layout)
        with torch.no_grad():
            lab = F.one_hot(torch.arange(n) % 3, 3).float()
            for _ in range(4):
                lab = csr @ lab
                lab[:3] = torch.eye(3)
            p = torch.sparse.sampled_addmm(csr, z.contiguous(), z.T.contiguous(), beta=0.0) if hasattr(torch.sparse, "sampled_addmm") else csr
            mask = torch.rand(n, n, generator=torch.Generator().manual_seed(s)).gt(0.7).float().to_sparse()
            sp = (z @ z.T).sparse_mask(mask.coalesce())
            both = A + mask
            print(s, H(lab), H(p), p.layout, H(sp), sp.is_coalesced(), both.is_coalesced(), both._nnz(), H(both), H(csr.crow_indices()), H(A.transpose(0, 1) @ z), H((A * 2).indices()), (A * 2).is_coalesced(), H(torch.sparse.mm(A, A)))
            sp.values().mul_(2)
            print(s, sp._version, sp._values()._version, H(sp), H(A.index_select(0, torch.tensor([1, 1, 3]))), H(torch.sparse.spdiags(deg, torch.tensor([0]), (n, n))), H(torch.cat([A, mask])), H(A.to_sparse_csc().row_indices()), H(csr.to_sparse_bsr((2, 2)).values()))
print([str(w.message)[:80] for w in seen])
