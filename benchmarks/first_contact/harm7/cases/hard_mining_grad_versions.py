"""Losses by topk, kthvalue, median, quantile, cummax, gather and masked_select: values, graph names, and versions, strides and aliasing of retained gradients must stay the same."""
# PRELUDE
m = net(4, 8, 32, 10)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)


def show(label, z, loss):
    z.grad = None
    loss.backward(retain_graph=True)
    gz = z.grad
    print(label, float(loss.detach()).hex(), H(gz), gz._version, gz.stride(), gz.storage_offset(), gz._is_view(), loss.grad_fn.name(), loss._version, loss._is_view(), [p.grad._version for p in m.parameters()])


for s in range(3):
    x, _ = batch(s, 20)
    y = torch.randint(0, 10, (20,), generator=torch.Generator().manual_seed(s))
    opt.zero_grad()
    z = m(x)
    z.retain_grad()
    ce = F.cross_entropy(z, y, reduction="none")
    show("ohem", z, ce.topk(6).values.mean())
    show("sort", z, ce.sort(descending=True).values[:5].mean())
    show("kth", z, z.kthvalue(3, 1).values.sum())
    show("median", z, z.median(1).values.square().mean() + z.median())
    show("nanmedian", z, torch.nanmedian(z) + z.nanmean())
    show("quantile", z, torch.quantile(z, torch.tensor([0.1, 0.5, 0.9]), dim=1).sum())
    show("max", z, z.max(1).values.sum() - z.amax() + z.aminmax(dim=1).min.sum())
    show("cummax", z, z.cummax(1).values.mean() + z.cummin(0).values.mean() + z.logcumsumexp(1).mean())
    show("mode", z, z.mode(1).values.sum())
    show("gather", z, -z.log_softmax(1).gather(1, y[:, None]).mean())
    show("select", z, z.masked_select(z > 0).square().mean() + z[z < 0].abs().mean())
    show("split", z, sum(t.square().mean() * (i + 1) for i, t in enumerate(z.tensor_split(3, 1))) + z.hsplit(2)[1].sum())
    show("bce", z, F.binary_cross_entropy_with_logits(z, F.one_hot(y, 10).float(), pos_weight=torch.full((10,), 2.0)) + F.binary_cross_entropy(z.sigmoid(), F.one_hot(y, 10).float()))
    show("triplet", z, F.triplet_margin_loss(z[:6], z[6:12], z[12:18]) + F.cosine_similarity(z[:10], z[10:]).mean() + F.normalize(z, dim=1).sum())
    show("margin", z, F.multi_margin_loss(z, y) + F.multilabel_soft_margin_loss(z, F.one_hot(y, 10).float()) + F.softsign(z).mean())
    show("diff", z, z.diff(dim=1).abs().mean() + torch.gradient(z, dim=1)[0].square().mean() + torch.cov(z.T).diagonal().sum())
    opt.step()
    print(s, M(m))
