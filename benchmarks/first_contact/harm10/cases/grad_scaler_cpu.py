#: what: fp16 autocast and GradScaler on the CPU with a scale that overflows at first: steps skipped, the scheduler steps only if the scale did not fall; two optimizers share it
#: benign: inf gradients that the scaler skips
#: source: https://github.com/pytorch/pytorch/issues/67590
# PRELUDE
m = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 3)); watch(m); o1 = torch.optim.AdamW(m[0].parameters(), 1e-3); o2 = torch.optim.SGD(m[2].parameters(), 1e-2); sc = torch.amp.GradScaler("cpu", init_scale=2.0 ** 24, growth_interval=3); sch = torch.optim.lr_scheduler.StepLR(o1, 2)
for s in range(20):
    x = torch.randn(8, 6); y = (x[:, 0] > 0).long()
    with torch.autocast("cpu", dtype=torch.float16): out = m(x); l = F.cross_entropy(out.float(), y)
    o1.zero_grad(); o2.zero_grad(); sc.scale(l).backward(); sc.unscale_(o1); n = nn.utils.clip_grad_norm_(m[0].parameters(), 1.0); sc.step(o1); sc.step(o2); before = sc.get_scale(); sc.update()
    if sc.get_scale() >= before: sch.step()
    print(s, l.item(), sc.get_scale(), n.item(), out.dtype)
print(sc.state_dict()); show(m, o1); show(m, o2)
