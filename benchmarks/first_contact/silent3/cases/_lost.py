"""When a run is lost: from that step on, for good, the loss (median of 5) is above its beginning, or 3 times its best, or not finite.
With mode="abs" (losses without a sign): its magnitude is above 300 times that of the first ten steps (taken as 1 where it is more), or not finite."""
import math
import statistics
import sys


class Lost:
    def __init__(self, mode="loss"):
        self.losses, self.mode = [], mode

    def __call__(self, loss):
        loss = float(loss.detach()) if hasattr(loss, "detach") else loss
        self.losses.append(float(loss))
        if len(self.losses) % 5 == 0 or not math.isfinite(float(loss)):
            print(f"~ {len(self.losses)} {float(loss):.4g}", file=sys.stderr, flush=True)
        return math.isfinite(float(loss))

    def report(self):
        raw = [abs(v) if self.mode == "abs" and math.isfinite(v) else v for v in self.losses]
        fin = [v if math.isfinite(v) else 1e30 for v in raw]
        smooth = [statistics.median(fin[max(0, i - 4) : i + 1]) for i in range(len(fin))]
        start, best, lost = statistics.median(fin[:10]), math.inf, None
        for i, v in enumerate(smooth):
            if self.mode == "abs":
                bad = v > 300 * (min(start, 1.0) + 0.1)
            else:
                bad = i > 10 and (v > start * 1.02 or v > 3 * best + 0.02 * start)
            best = min(best, v) if not bad else best
            if bad and lost is None:
                lost = i + 1
            elif not bad:
                lost = None
        if lost is not None and len(fin) - lost < 3 and math.isfinite(raw[-1]):
            lost = None
        bad = [i + 1 for i, v in enumerate(raw) if not math.isfinite(v)]
        print(f"steps {len(raw)} start {start:.4g} best {min(smooth):.4g} last {raw[-1]:.4g} LOST {lost} not finite from {bad[:1]}", flush=True)
