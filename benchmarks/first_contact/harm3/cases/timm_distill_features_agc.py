"""timm: a teacher in eval, hint losses on features taken by hooks (FeatureHooks/feature_extraction), adaptive gradient clipping, layer decay groups, model EMA by a swap."""
# PRELUDE
import timm
from timm.optim import create_optimizer_v2
from timm.utils.agc import adaptive_clip_grad

t = timm.create_model("resnet10t", num_classes=5, features_only=True, out_indices=(1, 2)).eval()
m = timm.create_model("test_efficientnet", num_classes=5, drop_rate=0.1, drop_path_rate=0.1) if "test_efficientnet" in timm.list_models() else timm.create_model("resnet10t", num_classes=5)
W(m)
feats = []
stage = [x for x in m.modules() if isinstance(x, nn.Sequential)][2]
h = stage.register_forward_hook(lambda mod, i, o: feats.append(o))
opt = create_optimizer_v2(m, opt="lamb", lr=1e-3, weight_decay=0.05, layer_decay=0.8)
print(len(opt.param_groups))
for s in range(3):
    g = torch.Generator().manual_seed(s)
    x = torch.rand(2, 3, 48, 48, generator=g)
    with torch.no_grad():
        f = t(x)
    feats.clear()
    y = m(x)
    hint = sum(F.mse_loss(F.adaptive_avg_pool2d(a, 1).mean(1), F.adaptive_avg_pool2d(b, 1).mean(1)) for a, b in zip(feats, f))
    loss = F.kl_div(F.log_softmax(y / 2, -1), F.softmax(f[-1].mean((2, 3))[:, :5] / 2, -1), reduction="batchmean") + hint
    opt.zero_grad()
    loss.backward()
    adaptive_clip_grad(m.parameters(), 0.02)
    opt.step()
    print(s, loss.item().hex(), len(feats))
h.remove()
print(M(m), R())
