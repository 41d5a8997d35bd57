import json
from cure import *
EXP = dict(A01="3", A02="6", A03="4", A04="1", A05="5", A07="9", A08="2", A10="3", A11="7", A15="8", A17="1", A18="5", A24="4", A25="3", A28="2", A29="4", A33="3", A34="1", A35="6", A37="5", A38="10", A39="4", A40="2", A41="1,6", A43="4", A46="2", B01="17", B02="5", B03="2,6", B04="40", B05="11", B06="1", B07="4,13", B08="7 (dim 1)", B09="3 (dim 1)", B10="100,201", B11="1", B12="9", B13="2", B17="31,90", B18="4", B19="6", B20="4 or 9", B22="0,47", B23="19", B25="2", B26="1 (dim 1)", B28="6", B29="3", B30="3,27", B31="200", B33="0,7,15", B34="31,90", B35="2 (dim 1)", C01="1", C02="0", D01="5", D02="3", D03="7", D05="6", D06="4", D07="2")
SKIPROW = {"C20", "C17", "A30"}
J = {
"A07": ("partly", "clamping logvar cures (verified) and was not tried"), "A08": ("partly", "only the row; a finite mask was not tried (inside torch's function)"),
"A11": ("partly", "only the row; the advised finite mask was not tried"), "A17": ("partly", "only the row; the advised finite mask was not tried"),
"A12": ("silent", "correction=0 is advised, cures (verified), was not tried; what is tried says no, truly"), "A25": ("partly", "only the row; a floor of the variance cures and was not tried (the clamp of the log alone: said no, truly)"),
"A32": ("silent", "contained note (GradScaler skipped): operation and reason are right, nothing tried"), "A39": ("partly", "only the row; the clamp cures (verified) and was not tried"),
"A40": ("right", "row only"), "A41": ("partly", "rows right; an eps under the root was not tried"), "A43": ("right", "row only; the finite mask does not cure, verified"),
"A44": ("silent", "found at the cast model.to(float16), outside the model: reason and advice right, nothing to try"),
"A30": ("right", "fails at step 0 by its own noise; row 15 is right for that step; the planted row 11 of step 2 fails later"),
"B04": ("partly", "dataclass batch: row not named, leaving it out cures (verified)"), "B29": ("partly", "dataclass batch: row not named, leaving it out cures (verified)"),
"B08": ("wrong", "names time step 4 of 9 as `row` of the batch; the sample is 7 of 12 along dimension 1. Leaving out what it names cures"), "B35": ("wrong", "rows: names time step 5 of 9, the sample is 2 of 4; the weight's row is right and cures"),
"B09": ("partly", "time x batch: row not named, leaving sample 3 out cures (verified)"), "B10": ("silent", "two rows of 256 not named (leaving them out cures, verified); sqrt(x + eps) cures (verified), not tried; the clamp said no, truly"),
"B17": ("partly", "two rows of 128 not named, leaving them out cures (verified)"), "B34": ("partly", "two rows of 128 not named, leaving them out cures (verified)"),
"B16": ("right", "nothing about rows; empty Tried, advice right"), "B24": ("right", "a batch of one is refused by BatchNorm1d: nothing said, truly"), "B27": ("right", "two causes: nothing is said to work, truly"),
"B25": ("partly", "another input has the batch's length: row not named, leaving it out cures (verified)"), "B26": ("silent", "T = N: nothing said (nothing false); leaving sample 1 out cures (verified)"),
"B32": ("silent", "fault in the script's loss: not tried, as the docs say; advice right"), "B20": ("right", "leaving out 4 or 9 cures too (verified), not said"),
"C06": ("right", "whole weight: nothing said, truly"), "C07": ("silent", "found at load_state_dict with the right reason; nothing tried"), "C10": ("silent", "running_var[2] = 0 cures (verified), buffers are not tried"),
"C11": ("silent", "row 2 and its state at 0 cures (verified), not tried; a clamp of the square is advised"), "C12": ("silent", "no culprit: `the weights were changed before the step was judged`; see miss 6"),
"C15": ("wrong", "said to work; the update is nan (exp_avg_sq row 5)"), "C19": ("wrong", "said to work; the update is nan (another layer's exp_avg)"), "C18": ("right", "a row at 0 is 0/0: said no, truly"),
"C17": ("wrong", "high_precision: gradients not finite; bfloat16 and rows: the update is not (momentum inf); the row at 0 with its momentum cures"), "C20": ("wrong", "high_precision: gradients not finite; bfloat16 and the row at 0 cure; rows 3 and 4 at that step only (the cause is the weight)"),
"D03": ("right", "the row cures its step; at step 3 another row of another batch fails in the same way"), "D05": ("partly", "row 6 not named, leaving it out cures (verified)"), "D06": ("partly", "row 4 not named, leaving it out cures (verified)"), "D07": ("partly", "row 2 not named, leaving it out cures (verified)"),
}
import collections
tot = collections.Counter(); rowsfig = collections.Counter(); out = []; cnt = collections.Counter(); byp = collections.defaultdict(collections.Counter)
for part in "ABCD":
    out.append({"A": "## A. Operations", "B": "## B. Batches", "C": "## C. Weights", "D": "## D. fp8 and fp4"}[part] + "\n\n| case | bare run | operation named | remedies said to work: cured / cured at that step only / not | rows named (planted) | said no | judged | remark |\n|---|---|---|---|---|---|---|---|")
    for c in sorted((here / "cases").glob(part + "*.py")):
        n, k = c.stem, c.stem[:3]
        x = first(n); tr = trace(here / "runs" / n / "bare")
        ok = [t for t in x["culprit"]["tried"] if t["worked"]] if x and x.get("culprit") else []
        no = [t for t in x["culprit"]["tried"] if not t["worked"]] if x and x.get("culprit") else []
        cells = collections.Counter(); named = ""
        for i, t in enumerate(ok):
            r = t["remedy"]
            d = here / "runs" / n / f"cure{i}"
            q = trace(d)
            if r.startswith("disable_fp8"): q = trace(here / "runs" / n / "fp8")
            good = not set(q) - {"."} or (k == "B35" and r.startswith("a batch"))
            once = not good and (k, r[:7]) in {("A30", "a batch"), ("C01", "a batch"), ("C02", "a batch"), ("D03", "a batch"), ("C20", "a batch")}
            cells["cured" if good else "once" if once else "not"] += 1
            cnt["remedies"] += 1
            if r.startswith("a batch"): named = ",".join(re.findall(r"\d+", r.split(" of ")[0]))
        tot.update(cells)
        exp = EXP.get(k, "")
        if k not in SKIPROW:
            if exp and named == exp: rowsfig["exactly the planted rows"] += 1
            elif exp and named: rowsfig["other rows"] += 1
            elif exp: rowsfig["not named"] += 1
            elif named: rowsfig["named where none were planted"] += 1
            else: rowsfig["none planted alone, none named"] += 1
        v, why = J.get(k, ("right", ""))
        byp[part][v] += 1
        op = x["culprit"]["op"].replace("aten.", "") if x and x.get("culprit") else "none"
        out.append(f"| {n} | {tr} | {op} | {cells['cured']} / {cells['once']} / {cells['not']} | {named or '-'} ({exp or '-'}) | {len(no) or ''} | {v} | {why} |")
    out.append("")
print(tot, rowsfig, {p: dict(b) for p, b in byp.items()}, sum(sum(b.values()) for b in byp.values()))
(here / "tables.md").write_text("\n".join(out))
