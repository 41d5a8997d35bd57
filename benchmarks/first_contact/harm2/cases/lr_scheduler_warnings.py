"""The schedulers' own warnings (scheduler before optimizer, epoch deprecated), step counts, last lr; the text on stderr.

Source: https://github.com/NVIDIA/apex/pull/553 (opt.step replaced)
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
sch = torch.optim.lr_scheduler.SequentialLR(opt, [torch.optim.lr_scheduler.ConstantLR(opt, 0.5, 2), torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)], [2])
sch.step()
for s in range(4):
    print(train(m, opt, 1, s), sch.get_last_lr()[0].hex()); sch.step()
p = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
for v in (1.0, 2.0, 3.0): p.step(v)
o2 = torch.optim.SGD(m.parameters(), 0.1); s2 = torch.optim.lr_scheduler.ExponentialLR(o2, 0.9)
o2.step(); s2.step(3)
print(opt.param_groups[0]["lr"], s2.last_epoch, getattr(o2.step, "_wrapped_by_lr_sched", None), M(m))
