import json
R={}
for n in ("weights","other","sampling","trunc","healthy"):
    for r in json.load(open(f"work/out_{n}.json")): R[r["id"]]=r
# verdicts: compare plain full models; R right, P partly, W wrong, S silent, E equal and rightly so (nothing to see for this function), - not asked
J="""W01 R S R R
W01p R R R R
W02 R R R R
W03 R S R R
W04 R S R R
W05 R W W R
W06 R W W R
W07 R P P R
W13 P P P R
W14 R P P R
W15 R S S R
W15p R P P R
W16 R P P R
W17 R S S R
W18 P S P R
W19 P S S R
W20 R P P R
W21 R P P R
W22 R P P P
W23 R S S R
W23b P S S R
W23c E S S R
W24 R P P R
W25 P S S R
W26 R S S R
W28 P P P R
W29 R S R R
W30 R P P R
W31 R R R R
W32 R S S R
A08 R R R R
A09 P P P R
A10 P P P R
A10b S P P R
A12 R R R R
A12b P P P R
A27 R R R R
A27b R R R R
C22 E S S R
C22p E W W R
C23 E W W R
C23b E W W R
C23p E W W R
C24 E S S R
C24p E W W R
C25 E W W R
C26 - W W -
L01 - R R -
L01b - R R -
L02r - R R -
L03r - R R -
L04r - W R -
L04br - W W -
L04cr - P R -
L05r - W W -
L05br - W W -
L06 - W W -
L06b - P P -
L06r - W W -
L07 - W W -
L07b - W W -
L08 - W W -
L09 - R R -
L09b - R R -
L09c - P - -
L10 - R - -
L10b - R R -
L10c - R - -
L11 - R R -
L12 - P P -
L13 - R - -
L13b - W W -
L14 - P R -
L15 - P P -
L15b - P P -
L16 - P P -
L16b - R R -
L17 - W W -
L17b - W W -
L18 - R R -
L18b - R R -
L19 - W W -
L19b - W W -
L19c - W W -
L21 - W W -
L21b - - S -
L26 - W W -
L27 - W W -
L28 - W W -
L29 - R R -
L31 - P P -
L32 - W W -
L33 - R R -
L34 - R R -"""
from collections import Counter
cnt={f:Counter() for f in ("compare","plain","full","models")}
rows=[]
def q(r,f):
    d=r[f]
    if d["text"].startswith("RAISED"): return "c"
    if f in ("plain","full"): return "c" if d["is_certain"] else "q"
    return "q" if "order, by their sum and norm?" in d["text"].split("\n")[1:2].__str__() or ("?" in d["text"]) else "c"
short=lambda t: t.replace("\n"," ; ").replace("|","/")[:110]
for line in J.splitlines():
    id,*v=line.split(); r=R[id]; cells=[]
    for f,x in zip(("compare","plain","full","models"),v):
        if x=="-" or f not in r: cells.append("–"); continue
        k=q(r,f) if x in "RPW" else ""
        cnt[f][x+k]+=1; cells.append({"R":"right","P":"partly","W":"**wrong**","S":"silent","E":"equal (so it is)"}[x]+("?" if k=="q" else ""))
    said=(r.get("full") or r.get("plain"))["text"].split("\n")[0]
    cs=r["compare"]["text"].split("\n")[-1].strip() if "compare" in r else ""
    rows.append(f"| {id} | {r['truth']} | {r['src']} | "+" | ".join(cells)+f" | {short(said)} |")
n=len(rows)
out=[f"{n} faults.","","| case | truth | source | compare | logprobs plain | logprobs full | models | compare_logprobs (full) said |","|---|---|---|---|---|---|---|---|"]+rows
print(n); tab=["| function | certain: right | certain: partly | certain: wrong | question: right | question: partly | question: wrong | silent | equal, rightly |","|---|---|---|---|---|---|---|---|---|"]
for f,l in (("compare","`compare` with history"),("plain","`compare_logprobs` a, b, mask"),("full","`compare_logprobs` with tokens, logits, noise, candidates"),("models","`compare_models`")):
    c=cnt[f]; tab.append(f"| {l} | "+" | ".join(str(c[k]) for k in ("Rc","Pc","Wc","Rq","Pq","Wq","S","E"))+" |")
# by case: any right / best
best=Counter()
for line in J.splitlines():
    id,*v=line.split(); s=[x for x in v]; b="R" if "R" in s else "P" if "P" in s else "W" if "W" in s else "S"; best[b]+=1
tab.append(""); tab.append(f"By case, the best of all functions: right {best['R']}, partly {best['P']}, wrong only {best['W']}, silent only {best['S']} (of {n}).")
h=[r for r in R.values() if r["id"].startswith("H")]
hc=Counter(); hr=[]
FALSE={("H08c","compare"),("H08d","compare"),("H23","compare"),("H03","models"),("H03p","models"),("H14","models"),("H14p","models"),("H08","models"),("H08b","models"),("H22","models")}
for r in h:
    c=[]
    for f in ("compare","plain","full","models"):
        if f in r:
            hc[f]+=1; bad=(r["id"],f) in FALSE; hc[f+"!"]+=bad
            c.append("**false**" if bad else ("a cast (as documented)" if r[f]["true"] is False else "true"))
            assert r[f]["true"] is not False or bad or r["id"].startswith(("H01x","H02x")),(r["id"],f)
        else: c.append("–")
    hr.append(f"| {r['id']} | {r['truth']} | "+" | ".join(c)+" |")
tab.append(""); tab.append(f"Healthy: {len(h)} twins; false: compare {hc['compare!']} of {hc['compare']}, logprobs plain {hc['plain!']} of {hc['plain']}, logprobs full {hc['full!']} of {hc['full']}, models {hc['models!']} of {hc['models']}.")
open("work/tab_figures.md","w").write("\n".join(tab)+"\n"); open("work/tab_faults.md","w").write("\n".join(out)+"\n")
open("work/tab_healthy.md","w").write("\n".join(["| case | twin | compare | logprobs plain | logprobs full | models |","|---|---|---|---|---|---|"]+hr)+"\n")
print("\n".join(tab))
