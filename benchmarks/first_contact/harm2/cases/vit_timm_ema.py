"""A small ViT of timm with ModelEmaV3, mixup-like draws of numpy and stochastic depth; weights of both.

Source: https://github.com/lucidrains/ema-pytorch/issues/6
"""
# PRELUDE
import timm
from timm.utils import ModelEmaV3
random.seed(0); np.random.seed(0); torch.manual_seed(0)
m = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=2, num_classes=5, drop_path_rate=0.2)
W(m)
ema = ModelEmaV3(m, decay=0.9)
opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for s in range(4):
    x = torch.randn(4, 3, 32, 32)
    lam = np.random.beta(0.4, 0.4)
    x = lam * x + (1 - lam) * x.flip(0)
    y = torch.tensor([random.randrange(5) for _ in range(4)])
    loss = F.cross_entropy(m(x), y, label_smoothing=0.1)
    opt.zero_grad(); loss.backward(); opt.step(); ema.update(m)
    print(float(loss.detach()).hex())
print(M(m), M(ema.module), R())
