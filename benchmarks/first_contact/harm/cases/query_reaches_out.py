"""Queries that would read other files, write, attach, install, set, run several statements, or never end: refused, nothing is written.

source: DuckDB's own advice on securing; own list of statements
truth: docs/runs.md: "a query only reads: one SELECT, no other file, no network, no extension, no variable of the program"
meta: {"kind": "tool", "limit": 400}
"""
import os
from pathlib import Path
from fctool import digest, done, make_run, sane, say, tool

Path("secret.csv").write_text("a\nTOPSECRET\n")
os.environ["MY_TOKEN"] = "TOPSECRET"
run = make_run("run", bad=-1)
before, here = digest(run), sorted(os.listdir("."))
here_path = os.path.abspath("secret.csv")
QUERIES = [
    f"SELECT * FROM read_csv('{here_path}')",
    f"SELECT * FROM '{here_path}'",
    f"SELECT content FROM read_text('{here_path}')",
    "SELECT * FROM glob('/*')",
    "COPY (SELECT 1) TO 'out.csv'",
    "SELECT 1; COPY (SELECT 1) TO 'out2.csv'",
    "ATTACH 'x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access=true",
    "PRAGMA database_list",
    "SELECT getenv('MY_TOKEN')",
    "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')",
    "EXPORT DATABASE 'dump'",
    "CREATE TABLE t AS SELECT 1",
    "WITH x AS (SELECT 1) INSERT INTO stats SELECT * FROM x",
    "SELECT * FROM duckdb_secrets()",
    "SELECT /* ; */ 1 --\n; DROP VIEW stats",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out3.csv'",
    "FROM query('COPY (SELECT 1) TO ''out4.csv''')",
    "FROM query_table(['" + here_path + "'])",
]
for q in QUERIES:
    result = tool("stats", run, q, env={"MY_TOKEN": "TOPSECRET"})
    sane(result, q[:50])
    say(b"TOPSECRET" not in result[1] + result[2], f"{q[:50]}: tells no secret", result[1][:200])
say(sorted(os.listdir(".")) == here, "no file is new", sorted(set(os.listdir(".")) - set(here)))
say(digest(run) == before, "the run is as it was")
done()
