"""timm's training loop with Mixup and CutMix, foreach ModelEmaV3, BCE with soft targets, dispatched clipping, channels_last and bfloat16 autocast must keep weights, averages and random states."""
# PRELUDE
import timm
import timm.optim
from timm.data import Mixup
from timm.loss import AsymmetricLossMultiLabel, BinaryCrossEntropy, JsdCrossEntropy, SoftTargetCrossEntropy
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, accuracy, dispatch_clip_grad
from timm.utils.agc import unitwise_norm

torch.manual_seed(0)
np.random.seed(0)
m = timm.create_model("convnext_atto", num_classes=5, depths=(1, 1, 1, 1), dims=(8, 12, 16, 20), drop_path_rate=0.1).to(memory_format=torch.channels_last)
W(m)
opt = timm.optim.create_optimizer_v2(m, "nadamw", lr=5e-3, weight_decay=0.05)
sched, epochs = create_scheduler_v2(opt, "cosine", num_epochs=3, warmup_epochs=1, warmup_lr=1e-4)
emas = [ModelEmaV3(m, decay=0.9, use_warmup=True, foreach=f) for f in (True, False)]
mix = Mixup(mixup_alpha=0.3, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=5, mode="batch")
losses = [SoftTargetCrossEntropy(), BinaryCrossEntropy(target_threshold=0.2), AsymmetricLossMultiLabel()]
for s in range(5):
    g = torch.Generator().manual_seed(s)
    x, y = torch.randn(4, 3, 32, 32, generator=g).contiguous(memory_format=torch.channels_last), torch.randint(0, 5, (4,), generator=g)
    mx, my = mix(x, y)
    with torch.autocast("cpu", torch.bfloat16):
        out = m(mx)
        loss = losses[s % 3](out.float() if s % 2 else out, my)
    opt.zero_grad()
    loss.backward()
    dispatch_clip_grad(m.parameters(), (1.0, 0.05, 0.1)[s % 3], ("norm", "agc", "value")[s % 3])
    opt.step()
    sched.step_update(s)
    for e in emas:
        e.update(m, step=s)
    if s % 2:
        sched.step(s // 2)
    with torch.inference_mode():
        ev = emas[0](x)
    print(s, float(loss.detach()).hex(), H(out), out.dtype, M(m), [H(dict(e.module.state_dict())) for e in emas], H(ev), R(), opt.param_groups[0]["lr"])
    print(s, [p.grad.stride() for p in m.parameters() if p.dim() == 4][:4], sorted({p._version for p in m.parameters()}), sorted({p._version for p in emas[0].module.parameters()}), [a.item() for a in accuracy(out, y, (1, 3))], H(unitwise_norm(m.head.fc.weight)), mx.is_contiguous(memory_format=torch.channels_last))
