"""A trained model is converted by torch.utils.mkldnn.to_mkldnn: weights and activations have a layout without strides or storage."""
# PRELUDE
from torch.utils import mkldnn as mkldnn_utils

m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 4, 5))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
x = torch.randn(2, 3, 8, 8)
for s in range(3):
    opt.zero_grad()
    m(x).square().mean().backward()
    opt.step()
m.eval()


class Denser(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        y = x.to_mkldnn()
        for p in self.parts[:4]:
            y = p(y)
        return y


with torch.no_grad():
    k = Denser(mkldnn_utils.to_mkldnn(m))
    W(k)
    y = k(x)
    print(y.layout, tuple(y.shape), H(y.to_dense()))
    z = nn.ReLU()(x.to_mkldnn() - 0.0 if False else x.to_mkldnn())
    print(z.layout, H(z.to_dense()), type(k.parts[0]).__name__)
    conv = m[0]
    print(conv(x.to_mkldnn().to_dense()).shape, H(F.relu(x.to_mkldnn()).to_dense()))
print(M(m), R())
