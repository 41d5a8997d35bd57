"""RankMe, stable rank, condition numbers, nuclear and spectral norms of weights and embeddings that a monitor computes with and without gradients must keep their bits."""
# PRELUDE
m = net(1)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)


@torch.no_grad()
def spectra(tag, z):
    s = torch.linalg.svdvals(z)
    p = s / s.sum() + 1e-7
    print(tag, "rankme", H(torch.exp(-(p * p.log()).sum())), H(s), s.is_inference() or s._version, s.stride())
    print(tag, "nuc", H(torch.linalg.matrix_norm(z, "nuc")), H(torch.norm(z, p="nuc")), "two", H(torch.linalg.norm(z, 2)), H(torch.linalg.norm(z, -2)))
    c = z.T @ z
    print(tag, "cond", H(torch.linalg.cond(z)), H(torch.linalg.cond(c, "fro")), "eigvalsh", H(torch.linalg.eigvalsh(c)), "rank", torch.linalg.matrix_rank(z), (lambda r: r.is_inference() or r._version)(torch.linalg.matrix_rank(z)))
    print(tag, "cov", H(torch.cov(z.T)), H(torch.corrcoef(z.T)), H(torch.linalg.eigvals(c).abs().sort().values))


for s in range(6):
    x, y = batch(s, 24)
    h = m[:3](x)
    loss = F.mse_loss(m(x), y) + 1e-3 * torch.linalg.svdvals(h).sum() + 1e-4 * torch.linalg.matrix_norm(m[0].weight, "nuc")
    opt.zero_grad()
    loss.backward()
    spectra(f"{s} between", m[0].weight.grad)
    opt.step()
    spectra(f"{s} emb", m[:3](x))
    spectra(f"{s} w", m[2].weight)
    with torch.inference_mode():
        spectra(f"{s} inf", m(x))
    print(s, float(loss.detach()).hex(), M(m))
print(R())
