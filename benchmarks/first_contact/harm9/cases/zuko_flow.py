"""Normalizing flows (zuko): spline flow with a uniform base whose log density outside is -inf, in evaluation; samples; NLL on data within."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import zuko
seed(61)
flow = zuko.flows.NSF(features=2, context=1, transforms=2, hidden_features=(16, 16))
maf = zuko.flows.MAF(features=2, transforms=2, hidden_features=(16,))
watch(flow)
watch(maf)
opt = torch.optim.Adam([*flow.parameters(), *maf.parameters()], 5e-3)
uni = torch.distributions.Independent(torch.distributions.Uniform(-torch.ones(2), torch.ones(2), validate_args=False), 1)
for step in range(12):
    x, c = torch.rand(32, 2) - 0.5, torch.randint(0, 2, (32, 1)).float()
    loss = -flow(c).log_prob(x).mean() - maf().log_prob(x).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        z, ladj = maf().transform.call_and_ladj(torch.randn(8, 2) * 2)
        lp = uni.log_prob(z) + ladj
        s = flow(torch.ones(1)).sample((4,))
        kl = (lp.exp() * lp).mean()
    print(step, dig(loss, z, lp, s, kl), int(lp.isinf().sum()), bool(kl.isnan()))
end(flow, opt); end(maf)
