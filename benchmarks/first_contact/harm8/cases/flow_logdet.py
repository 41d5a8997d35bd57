# what: a RealNVP by normflows and a bounded flow: log_prob is -inf outside the support, masked; nan at the border in evaluation
# benign: yes
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import normflows as nf
fl = []
for i in range(3): fl += [nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 2], init_zeros=True)), nf.flows.Permute(2, mode="swap"), nf.flows.ActNorm((2,))]
m = nf.NormalizingFlow(nf.distributions.DiagGaussian(2), fl); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(5):
    x = torch.rand(16, 2, generator=torch.Generator().manual_seed(s)) * 1.2; opt.zero_grad(); u = x.clamp(1e-3, 1 - 1e-3); z = torch.logit(u); ld = -(torch.log(u) + torch.log1p(-u)).sum(1); ok = (x < 1).all(1)
    lp = torch.where(ok, m.log_prob(z) + ld, torch.tensor(-float("inf"))); l = -lp[ok].mean(); l.backward(); opt.step(); print(float(l.detach()).hex(), lp.isinf().sum().item())
    with torch.no_grad(): print(m.log_prob(torch.logit(torch.tensor([[0., .5], [1., 1.]]))).isfinite().any().item(), H(m.sample(3)[0]))
print(M(m), R())
