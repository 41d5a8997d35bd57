"""SWA and EMA by AveragedModel, update_bn, SWALR, bad epochs by isnan, the best of them kept; weight decay excluded by name; batches of one sample."""
# PRELUDE
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn, get_ema_multi_avg_fn
seed(95)
net = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.BatchNorm1d(8, momentum=None), nn.ReLU(), nn.Conv1d(8, 4, 1), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(4, 2))
swa, ema = AveragedModel(net), AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
watch(net)
decay = [p for n, p in net.named_parameters() if p.ndim > 1]
opt = torch.optim.SGD([{"params": decay, "weight_decay": 1e-3}, {"params": [p for p in net.parameters() if p.ndim <= 1]}], 0.1, momentum=0.9)
s1, s2 = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3), SWALR(opt, 0.01, anneal_epochs=2)
data = torch.utils.data.TensorDataset(torch.randn(33, 2, 9), torch.randint(0, 2, (33,)))
dl = torch.utils.data.DataLoader(data, 8, shuffle=True)
best = torch.tensor(float("inf"))
for epoch in range(7):
    net.train()
    for x, y in dl:
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        opt.zero_grad(); loss.backward(); opt.step()
        ema.update_parameters(net)
    if epoch > 3:
        swa.update_parameters(net); s2.step()
    else:
        s1.step()
    net.eval()
    with torch.no_grad():
        tail = F.cross_entropy(net(data.tensors[0][:0]), data.tensors[1][:0])
        v = F.cross_entropy(ema(data.tensors[0]), data.tensors[1])
        best = torch.minimum(best, v)
        uncorrected = net(data.tensors[0][:1]).var(0)
    print(epoch, dig(loss, tail, v, best, uncorrected), bool(tail.isnan()), opt.param_groups[0]["lr"])
update_bn(dl, swa)
print(dig(dict(swa.state_dict())), dig(dict(ema.state_dict())))
end(net, opt)
