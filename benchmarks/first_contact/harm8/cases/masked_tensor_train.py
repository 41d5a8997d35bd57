# what: torch.masked MaskedTensor in losses, masked reductions over nothing, nanmean over missing labels
# benign: yes
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from torch.masked import masked_tensor, mean, logsumexp, softmax
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(4):
    x, y = batch(s); y[y > 1] = float("nan"); y[0] = float("nan"); k = ~y.isnan(); opt.zero_grad(); o = model(x)
    l = torch.where(k, o - torch.where(k, y, 0.), 0.).pow(2).sum() / k.sum(); mt = masked_tensor(o.detach() / (o.detach() * 0), torch.ones(6, 4, dtype=torch.bool).tril()); print(H(mt.sum(0).get_data()))
    l.backward(); opt.step(); print(float(l.detach()).hex(), torch.nanmean((o.detach() - y) ** 2).item().hex(), H(mean(y, 1, mask=k)), H(logsumexp(y, 1, mask=k)), H(softmax(y, 1, mask=k)))
print(M(model), R())
