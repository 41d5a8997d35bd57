"""Evaluation through torch.utils.mkldnn.to_mkldnn(model), opaque tensors in and out; channels_last training."""
# PRELUDE
import torch.utils.mkldnn as M
import copy
seed(15)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)).to(memory_format=torch.channels_last)
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(10):
    x = torch.randn(8, 3, 8, 8).to(memory_format=torch.channels_last)
    loss = F.cross_entropy(net(x), torch.randint(0, 4, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 3 == 0:
        conv = M.to_mkldnn(copy.deepcopy(nn.Sequential(net[0], nn.ReLU())).eval())
        with torch.no_grad():
            z = torch.randn(2, 3, 8, 8)
            z[0, 0, 0, 0] = float("nan") if step == 6 else 0
            o = conv(z.to_mkldnn())
            print(o.layout, dig(o.to_dense()))
        h = z.requires_grad_().to_mkldnn()
        d = torch.relu(h).to_dense().nan_to_num().sum()
        d.backward()
        print(dig(z.grad))
    print(step, dig(loss), net[0].weight.is_contiguous(memory_format=torch.channels_last), net[0].weight.grad.stride())
end(net, opt)
