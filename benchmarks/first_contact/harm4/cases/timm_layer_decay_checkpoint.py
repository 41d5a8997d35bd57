"""timm: layer decay groups, ModelEmaV3, gradient checkpointing by checkpoint_seq, forward_intermediates, a feature wrapper, mixup, a model with drop path; state by CheckpointSaver."""
# PRELUDE
import logging
import timm
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3, unwrap_model

torch.manual_seed(0)
m = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3, num_classes=5, drop_path_rate=0.2, class_token=True)
W(m)
opt = create_optimizer_v2(m, "lamb", lr=1e-3, weight_decay=0.05, layer_decay=0.7)
ema = ModelEmaV3(m, decay=0.9)
mix = Mixup(mixup_alpha=0.4, cutmix_alpha=0.3, num_classes=5)
for s in range(5):
    m.set_grad_checkpointing(s % 2 == 1)
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(s))
    x, t = mix(x, torch.tensor([0, 1, 2, 3]))
    opt.zero_grad()
    loss = -(t * m(x).log_softmax(-1)).sum(-1).mean()
    loss.backward()
    timm.utils.dispatch_clip_grad(m.parameters(), 0.02, mode="agc")
    opt.step()
    ema.update(m, step=s)
    print(s, float(loss.detach()).hex(), H(dict(ema.module.state_dict())))
m.eval()
with torch.no_grad():
    f, inter = m.forward_intermediates(x, indices=2)
    print(H(f, *inter), H(m.forward_features(x)), len(opt.param_groups))
r = timm.create_model("test_resnet", features_only=True, num_classes=0) if "test_resnet" in timm.list_models() else timm.create_model("resnet10t", features_only=True)
W(r)
o2 = torch.optim.SGD(r.parameters(), 0.01)
for s in range(2):
    o2.zero_grad()
    sum(k.square().mean() for k in r(x)).backward()
    o2.step()
print(r.feature_info.channels(), M(r), unwrap_model(m) is m, M(m), R())
