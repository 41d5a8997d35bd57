"""Segmentation: mean IoU of torchmetrics and by hand, 0/0 for classes that are absent, nanmean of it; best model by it."""
# PRELUDE
import torchmetrics
seed(6)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 1))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True)
metrics = torchmetrics.MetricCollection({
    "auroc": torchmetrics.AUROC("multiclass", num_classes=5, average="none"),
    "kappa": torchmetrics.CohenKappa("multiclass", num_classes=5),
    "prec": torchmetrics.Precision("multiclass", num_classes=5, average="none"),
    "jac": torchmetrics.JaccardIndex("multiclass", num_classes=5, average="none"),
})
best = -float("inf")
for epoch in range(4):
    net.train()
    for _ in range(4):
        x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 3, (4, 8, 8))
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    inter, union = torch.zeros(5), torch.zeros(5)
    with torch.inference_mode():
        for _ in range(2):
            x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 3, (4, 8, 8))
            o = net(x)
            p = o.argmax(1)
            metrics.update(o.permute(0, 2, 3, 1).reshape(-1, 5), y.reshape(-1))
            for c in range(5):
                inter[c] += ((p == c) & (y == c)).sum()
                union[c] += ((p == c) | (y == c)).sum()
        iou = inter / union
        m = iou.nanmean()
    v = metrics.compute(); metrics.reset()
    if m > best:
        best = m.item()
        torch.save(net.state_dict(), "best.pt")
    print(epoch, dig(loss, iou, m), {k: dig(t) for k, t in v.items()}, int(iou.isnan().sum()))
end(net, opt)
