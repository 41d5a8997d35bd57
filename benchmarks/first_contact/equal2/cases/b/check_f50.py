# arithmetic on F50: which setting gives b? (the policy of rows.py)
import runpy, sys, torch
sys.argv = ["rows.py"] + sys.argv[1:]
g = runpy.run_path(__file__.replace("check_f50", "rows")); pick, logits, done, mask, minp, own = (g[k] for k in ("pick", "logits", "done", "mask", "minp", "own"))
b = pick(minp, done); ok = torch.isfinite(b) & mask
print("CHECK finite", ok.sum().item(), "excluded", (mask & ~ok).sum().item()); print("CHECK mean distance to logits / 0.2677:", (pick(logits / 0.2677, done) - b)[ok].abs().mean().item(), "max", (pick(logits / 0.2677, done) - b)[ok].abs().max().item())
for t in (0.2, 0.2677, 0.5, 0.7, 0.9): print("CHECK t", t, (pick(logits / t, done) - b)[ok].abs().mean().item())
