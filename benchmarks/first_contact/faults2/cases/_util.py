import torch
def done(loss, *models):
    ok = bool(torch.isfinite(torch.as_tensor(loss, dtype=torch.float32)).all())
    for m in models:
        for n, t in list(m.named_parameters()) + list(m.named_buffers()):
            t = t.detach()
            if hasattr(t, "to_local"): t = t.to_local()
            if t.is_floating_point() and not bool(torch.isfinite(t).all()):
                ok = False
    print("FINITE", ok, flush=True)
