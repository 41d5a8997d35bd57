"""Attributions between training steps: captum's DeepLift and guided backprop (module hooks forward and backward), IG, layer conductance; 0/0 in them."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from captum.attr import DeepLift, GuidedBackprop, IntegratedGradients, LayerConductance, FeatureAblation
seed(29)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.r, self.b, self.s, self.c = nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 12), nn.Sigmoid(), nn.Linear(12, 3)

    def forward(self, x):
        return self.c(self.s(self.b(self.r(self.a(x)))))


net = Net()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(6):
    x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    z = torch.randn(3, 5)
    d = DeepLift(net).attribute(z, torch.zeros(3, 5), target=1)
    g = GuidedBackprop(net).attribute(z.clone().requires_grad_(), target=1)
    i = IntegratedGradients(net).attribute(z, target=2, n_steps=8)
    l = LayerConductance(net, net.b).attribute(z, target=0, n_steps=4)
    f = FeatureAblation(net).attribute(z, target=0)
    norm = d / d.sum(1, keepdim=True).mul(0 if step == 3 else 1)
    print(step, dig(loss, d, g, i, l, f, norm), sum(len(m._backward_hooks) for m in net.modules()) >= 0)
end(net, opt)
