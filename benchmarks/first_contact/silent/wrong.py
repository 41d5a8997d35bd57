"""The step at which a (b) run has gone wrong for good. Two ways, the earlier one counts:

A  from it on, to the end, every |loss| is not finite or above three times the largest |loss| of the first 20 steps;
B  from it on, to the end, every median of five losses is not finite or above both twice the best one before it and
   0.8 times the first (what was learned is lost), and stays so for 20 steps or more.
"""
import math, statistics, sys


def wrong(path):
    L = [float(l.split()[2]) for l in open(path) if l.startswith("L ")]
    if len(L) < 30:
        return None, len(L), None, None
    inf = [v if math.isfinite(v) else math.inf for v in L]
    a = b = None
    top = 3 * max(abs(v) for v in inf[:20])
    for i in range(len(L) - 1, -1, -1):
        if abs(inf[i]) > top:
            a = i
        else:
            break
    med = [statistics.median(inf[max(0, i - 4) : i + 1]) for i in range(len(L))]
    best, low = [], math.inf
    for m in med:
        low = min(low, m)
        best.append(low)
    if low > 0:
        for i in range(len(L) - 1, -1, -1):
            if med[i] > max(2 * best[i], 0.8 * med[0]):
                b = i
            else:
                break
        if b is not None and len(L) - b < 20:
            b = None
    w = min((v for v in (a, b) if v is not None), default=None)
    return w, len(L), round(L[0], 3), L[-1]


if __name__ == "__main__":
    for p in sys.argv[1:]:
        print(p.split("/")[-1], *wrong(p))
