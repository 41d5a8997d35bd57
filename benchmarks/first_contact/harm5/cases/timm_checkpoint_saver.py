"""timm's train.py pieces: Mixup, ModelEmaV3, optimizer and scheduler factories, CheckpointSaver with recovery, resume_checkpoint, AverageMeter, unwrap_model, jsd split-BN."""
# PRELUDE
import timm, logging
from timm.data import Mixup
from timm.utils import ModelEmaV3, CheckpointSaver, AverageMeter, NativeScaler, unwrap_model, dispatch_clip_grad
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.models import resume_checkpoint
from timm.loss import SoftTargetCrossEntropy
from timm.layers import convert_splitbn_model
m = timm.create_model("resnet10t", num_classes=5, drop_path_rate=0.1, drop_rate=0.1)
m = convert_splitbn_model(m, 2)
W(m)
ema = ModelEmaV3(m, decay=0.9, use_warmup=True)
opt = create_optimizer_v2(m, opt="lambw", lr=1e-3, weight_decay=0.05, filter_bias_and_bn=True)
sch, ne = create_scheduler_v2(opt, sched="cosine", num_epochs=4, warmup_epochs=1, updates_per_epoch=2, step_on_epochs=False)
mix = Mixup(0.4, 0.4, cutmix_minmax=None, num_classes=5, label_smoothing=0.1)
crit = SoftTargetCrossEntropy()
os.makedirs("ck", exist_ok=True)
sv = CheckpointSaver(m, opt, model_ema=ema, checkpoint_dir="ck", recovery_dir="ck", decreasing=True, max_history=2)
n = 0
for ep in range(2):
    me = AverageMeter()
    m.train()
    for i in range(2):
        g = torch.Generator().manual_seed(n)
        x, y = mix(torch.randn(4, 3, 32, 32, generator=g), torch.randint(0, 5, (4,), generator=g))
        loss = crit(m(x), y)
        loss.backward()
        dispatch_clip_grad(m.parameters(), 0.5, mode="agc")
        opt.step()
        opt.zero_grad()
        n += 1
        ema.update(m, step=n)
        sch.step_update(n, metric=me.avg)
        me.update(loss.item(), 4)
        sv.save_recovery(ep, batch_idx=i)
    sch.step(ep + 1)
    with torch.no_grad():
        print(ep, me.avg.hex(), H(ema.module.eval()(torch.ones(1, 3, 32, 32))))
    print(sv.save_checkpoint(ep, metric=me.avg)[1])
print(M(m), sorted(os.listdir("ck")))
m2 = convert_splitbn_model(timm.create_model("resnet10t", num_classes=5, drop_path_rate=0.1, drop_rate=0.1), 2)
print(resume_checkpoint(m2, "ck/last.pth.tar", None, log_info=False), H(dict(m2.state_dict())) == H(dict(m.state_dict())), R())
for f in os.listdir("ck"):
    os.remove("ck/" + f)
