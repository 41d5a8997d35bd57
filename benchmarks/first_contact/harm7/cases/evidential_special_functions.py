"""digamma, lgamma, polygamma, erfinv, Bessel, zeta and incomplete gamma in evidential losses, samplers and metrics must keep bits, infinities at poles and error texts."""
# PRELUDE
S = torch.special
m = net(3, 8, 16, 4)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)


def kl(alpha):
    sa = alpha.sum(1, keepdim=True)
    return torch.lgamma(sa) - torch.lgamma(alpha).sum(1, keepdim=True) - torch.lgamma(torch.tensor(4.0)) + ((alpha - 1) * (torch.digamma(alpha) - torch.digamma(sa))).sum(1, keepdim=True)


for s in range(6):
    x, _ = batch(s, 12)
    y = torch.randint(0, 4, (12,), generator=torch.Generator().manual_seed(s))
    alpha = F.softplus(m(x)) + 1
    sa = alpha.sum(1, keepdim=True)
    hot = F.one_hot(y, 4).float()
    loss = (hot * (torch.digamma(sa) - torch.digamma(alpha))).sum(1).mean() + min(1, s / 3) * kl(hot + (1 - hot) * alpha).mean()
    kappa = alpha[:, 0]
    loss = loss - 0.01 * (kappa * torch.cos(alpha[:, 1]) - torch.log(S.i0e(kappa)) - kappa).mean() + 0.01 * S.erfinv((alpha[:, 2] / sa[:, 0]).clamp(0.01, 0.99)).square().mean()
    loss = loss + 0.001 * (S.log_ndtr(-alpha).mean() + S.entr(alpha / sa).sum(1).mean() + torch.mvlgamma(alpha + 2, 3).mean() + S.xlogy(alpha / sa, hot).mean().nan_to_num(neginf=0.0) + S.polygamma(1, alpha).mean() + torch.logit(alpha / sa).mean() + torch.sinc(alpha).mean())
    rs = torch.distributions.Dirichlet(alpha).rsample()
    loss = loss + 0.01 * (rs * hot).sum() + 0.01 * torch.distributions.Beta(alpha[:, 0], alpha[:, 1]).rsample().mean() + 0.01 * torch.distributions.Gamma(alpha, 1.0).rsample((2,)).log().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), M(m), R())
    with torch.no_grad():
        z = m(x).round()
        print(s, "poles", H(torch.digamma(z)), H(torch.lgamma(z)), torch.lgamma(z).isinf().sum().item(), torch.digamma(torch.zeros(1)).item(), H(S.gammaln(-z)), H(S.zeta(alpha, 1.0)), H(S.zeta(alpha, 2.5)))
        print(s, "inc", H(S.gammainc(alpha, sa)), H(S.gammaincc(alpha, z)), S.gammaincc(alpha, z).isnan().sum().item(), H(S.bessel_j0(alpha)), H(S.modified_bessel_k1(alpha)), H(S.i1e(alpha)), H(S.spherical_bessel_j0(alpha)))
        print(s, "poly", H(S.chebyshev_polynomial_t(z.tanh(), torch.arange(4))), H(S.hermite_polynomial_he(z, torch.full_like(z, 3))), H(S.airy_ai(z)), H(S.erfcx(z)), H(S.ndtri(rs)), H(S.xlog1py(rs, -rs)))
try:
    torch.special.gammainc(alpha, sa).sum().backward()
except RuntimeError as e:
    print(str(e)[:160])
try:
    torch.mvlgamma(torch.zeros(2), 3)
except RuntimeError as e:
    print(str(e)[:160])
