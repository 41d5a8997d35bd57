"""Writes SET.md and truth.json from the cases' own headers."""
import json, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
import run
rows, truth, own = [], {}, 0
for p in sorted((here / "cases").glob("*.py")):
    m = run.meta_of(p)
    meta = m["meta"]
    tool = meta.get("kind") == "tool"
    text = p.read_text()
    ent = ["tool"] if tool else meta.get("entrances", ["run", "watch"] if "watch(" in text and "fcw" in text else ["run"])
    expect = "the case prints no line that begins with harm, ends with done, status 0" if tool else "equal to the bare run in " + ", ".join(meta.get("compare", ["status", "stdout", "files", "stderr", "left", "tmp"]))
    known = "asserted by the case from the documents' statements" if tool else "the bare run, the same twice"
    mine = m["source"].startswith("own:")
    own += mine
    truth[p.stem] = {"title": m["title"], "source": m["source"], "entrances": ent, "expected": expect, "note": m["truth"], "bare_status": None if tool else meta.get("expect_status", [0]), "ranks": meta.get("torchrun", 1), "own_invention": mine}
    rows.append(f"| {p.stem} | {m['title'].rstrip('.')} | {m['source']} | {', '.join(ent)} | {m['truth'] or expect} | {known} |")
attempts = sum(len(t["entrances"]) for t in truth.values())
(here / "truth.json").write_text(json.dumps(truth, indent=1))
(here / "SET.md").write_text(f"""# harm: {len(truth)} cases, {attempts} attempts by the entrances run, watch and tool

Each case is a script of its own. `run.py` runs it bare and by each entrance, always in the same fresh folder, and compares what came of it, byte for
byte: exit status or signal, stdout, files left (names, modes, hashes), stderr (without lines that begin with `numscope:`, without frames of code that is
not the case's), processes left over, what is left in TMPDIR. Healthy scripts only: none that is compared makes a nan (the `tool` cases make a run folder with one).

- entrances: `run`: `numscope run case.py`. `watch`: the case calls `numscope.watch(model)` itself (`lib/fcw.py`). `tool`: other commands; the case asserts.
- on request also `sentinel` (`--level sentinel`) and `stats` (`--config … --log-dir …`) for all cases with the entrance run.
- verdicts: equal, different (with a diff), hang, crash (another signal), unsteady (different once, equal in a second pair of runs).
- what the documents except is left out: `len(module._forward_hooks)`, operations that a script's own mode counts, warnings with a larger stacklevel,
  frames in tracebacks, debug information in traced files.
- `python run.py --venv VENV --out OUT --bare-twice` checks that the cases are deterministic by themselves.

| case | what | source | entrances | truth | how known |
|---|---|---|---|---|---|
""" + "\n".join(rows) + "\n")
print(len(truth), attempts, "own", own, "distributed", sum(t["ranks"] > 1 for t in truth.values()), "tool", sum(t["entrances"] == ["tool"] for t in truth.values()))
