"""torchinfo's summary (hooks on all modules), torch-pruning (graph by hooks and grad_fn) between epochs, nn.utils.prune with reparametrization, spectral norm."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import torchinfo, torch_pruning as tp
import torch.nn.utils.prune as prune
seed(63)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
watch(net)
x0 = torch.randn(2, 3, 8, 8)


def train(n, opt):
    for step in range(n):
        loss = F.cross_entropy(net(torch.randn(8, 3, 8, 8)), torch.randint(0, 4, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
        print(step, dig(loss))


train(5, torch.optim.SGD(net.parameters(), 0.05))
print(torchinfo.summary(net, input_data=x0, verbose=0, col_names=("output_size", "num_params", "mult_adds")))
imp = tp.importance.MagnitudeImportance(p=2)
pr = tp.pruner.MagnitudePruner(net, x0, importance=imp, pruning_ratio=0.5, ignored_layers=[net[7]])
pr.step()
print([tuple(p.shape) for p in net.parameters()], tp.utils.count_ops_and_params(net, x0))
opt = torch.optim.SGD(net.parameters(), 0.05)
train(5, opt)
prune.l1_unstructured(net[7], "weight", 0.3)
prune.random_structured(net[3], "weight", 0.25, dim=0)
nn.utils.parametrizations.spectral_norm(net[0])
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
train(5, opt)
prune.remove(net[7], "weight"); prune.remove(net[3], "weight")
nn.utils.parametrize.remove_parametrizations(net[0], "weight")
train(3, torch.optim.SGD(net.parameters(), 0.05))
end(net, opt)
