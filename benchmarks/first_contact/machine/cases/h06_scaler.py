# opts: --check again:every=1
# truth: healthy (pytorch AMP recipe: float16 autocast, GradScaler on CPU that skips its first steps, unscale and clip)
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)); o = torch.optim.AdamW(m.parameters(), 1e-3); S = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
for C.STEP in range(12):
    with torch.autocast("cpu", torch.float16): l = m(torch.randn(8, 16)).float().square().mean()
    S.scale(l).backward(); S.unscale_(o); nn.utils.clip_grad_norm_(m.parameters(), 1.0); S.step(o); S.update(); o.zero_grad()
print("scale", S.get_scale()); C.finish(m, o)
