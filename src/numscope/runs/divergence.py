"""How far two runs' numbers of one site are apart, and how far is too far: definitions, in SQL.

Each statistic has a divergence between 0 and 1 that a change of scale of both tensors leaves alone and that does not depend on how many
elements were seen, so that a sharded and a whole tensor, or one and two copies of a weight, compare. With ``a`` and ``b`` the two values
and ``r`` the larger of both root mean squares:

    rms, amax               |a - b| / max(a, b)
    mean, std               |a - b| / r, at most 1
    abs_min                 |log2 max(a, e r) - log2 max(b, e r)| / 64, at most 1; e is one rounding of the coarser dtype
    num_zero                |a - b|, as shares of all elements
    num_nan, num_inf        the same, and 1 where only one run has any
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from numscope.records.errors import UsageError
from numscope.records.formats import FORMATS
from numscope.records.observation import SUMS
from numscope.runs.folder import Run
from numscope.runs.merging import PLAIN, about_one_center, merged_sql
from numscope.runs.query import RAW, reading
from numscope.summary.statistics import STATISTICS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

STATS = ("rms", "mean", "std", "amax", "abs_min", "num_zero", "num_nan", "num_inf")

# One rounding step at 1.0. What is not here (integers, several dtypes merged) counts as bfloat16.
_FLOATS = [form for form in FORMATS.values() if form.torch_name and form.exponent_bits and form.fraction_bits]
EPSILON = {form.torch_name: 2.0**-form.fraction_bits for form in _FLOATS}
EPSILON |= {"float64": 2.0**-52, "complex128": 2.0**-52, "complex64": 2.0**-23, "complex32": 2.0**-10}
UNKNOWN_EPSILON = EPSILON["bfloat16"]

LEAST = 1e-7  # below it, differences are those of the float64 sums themselves (std beside a mean a thousand times as large)
MARGIN = 3.0  # factor by which a difference must exceed the noise
FIRST_MARGIN = 6.0  # the same again over how many samples of noise there are: one sample is a small one too often
FEW = 8.0  # zeros that come and go by rounding, in a tensor so small that they are many, or where an A/A pair by chance shows none
STEP_TOLERANCE = 0.5  # two steps of one run, with nothing before them to calibrate by
PORTION = 3 << 16  # rows that are compared, or merged, at a time: what is between a run's rows and the result takes 0.1 to 0.2 GiB
ONE_SIDED = 1 / LEAST  # severity of a nan or inf that one run alone has


# What rounding alone makes of two runs' statistics within some steps, and some more: of means (rms, mean, std), of amax, of the share of
# zeros. Measured on a Llama of 4 layers, 6 steps of AdamW: float32 summed in another order 3e-6, 2e-5, 3e-3; bfloat16 against float32 8e-3,
# 3e-2, 1e-2; float16 against float32 4e-3, 2e-2. Its gradients' zeros (up to a fifth) are underflow, which no tolerance shall hide.
ROUNDING = {
    "float64": (LEAST, 1e-6, 1e-3), "complex128": (LEAST, 1e-6, 1e-3), "float32": (1e-5, 1e-4, 5e-3), "complex64": (1e-5, 1e-4, 5e-3),
    "float16": (1e-2, 5e-2, 2e-2), "complex32": (1e-2, 5e-2, 2e-2), "bfloat16": (3e-2, 1e-1, 2e-2),
}  # fmt: skip
ROUNDING_OF_8_BITS = (0.25, 0.5, 0.1)
ABS_MIN = 0.25  # 16 powers of two: the smallest magnitude of a tensor is what cancellation leaves


def default_tolerances(dtype: str) -> dict[str, float]:
    """Tolerances for two runs of the same training, the coarser of which computes in this dtype."""
    mean, extreme, zeros = ROUNDING.get(dtype, ROUNDING_OF_8_BITS if dtype.startswith("float8") else ROUNDING["bfloat16"])
    return {
        "rms": mean, "mean": mean, "std": mean, "amax": extreme, "abs_min": ABS_MIN,
        "num_zero": zeros, "num_nan": 1e-3, "num_inf": 1e-3,
    }  # fmt: skip


def coarser(one: str, other: str) -> str:
    """The one of two dtypes that rounds more."""
    return max(one, other, key=lambda dtype: EPSILON.get(dtype, UNKNOWN_EPSILON))


def _epsilon(column: str) -> str:  # numbers with an exponent: SQL takes others for decimals
    cases = " ".join(f"WHEN '{name}' THEN {value:.17e}" for name, value in EPSILON.items())
    return f"CASE {column} {cases} ELSE {UNKNOWN_EPSILON:.17e} END"


def load(con: DuckDBPyConnection, name: str, run: Run) -> None:
    """Makes the table ``name``: one row a step, layer and tensor, ranks and parts merged by a summary's laws, with the statistics compared.

    Several ranks may write one site each (stages of a pipeline, unreduced logging): the lowest rank gives their place in the step.

    *Cost:* one scan; merging, where sites have several rows, sorts ``PORTION`` rows at a time and takes ten times as long.
    """

    def moved(stored: DuckDBPyConnection) -> int:
        con.execute(f"DROP TABLE IF EXISTS {name}")
        num_rows, num_sites = map(
            int, stored.execute(f"SELECT count(*), count(DISTINCT hash(step, layer, tensor)) FROM {RAW}").fetchall()[0]
        )
        if num_rows == num_sites:
            _stream(stored, _WITH_STATISTICS.format(merged=_ALONE), con, name)
            return num_rows
        steps = "SELECT step, sum(count(*)) OVER (ORDER BY step) // ? AS portion FROM raw GROUP BY step"
        bounds = stored.execute(f"SELECT min(step), max(step) FROM ({steps}) GROUP BY portion ORDER BY ALL", [PORTION]).fetchall()
        for first, last in bounds:
            _stream(stored, _WITH_STATISTICS.format(merged=_TOGETHER.format(where=f"step BETWEEN {first} AND {last}")), con, name)
        return num_rows

    if not reading(run, moved, raw_only=True):  # reaches this run's files and no others
        raise UsageError(f"RUN: {run.path!r} holds no row with a step, a layer and a rank, expected some.")


def _stream(stored: DuckDBPyConnection, sql: str, con: DuckDBPyConnection, name: str) -> None:
    """Appends a query's rows to a table of another connection."""
    con.register(f"{name}_rows", stored.sql(sql).to_arrow_reader(1 << 16))
    exists = con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = ?", [name]).fetchone() == (1,)
    con.execute(f"INSERT INTO {name} FROM {name}_rows" if exists else f"CREATE TEMP TABLE {name} AS FROM {name}_rows")
    con.unregister(f"{name}_rows")


# A hash of the ranks' stored numbers in any order: their merged sums differ in the last bit with the order in which they are added.
_STORED = """hash(numel, num_nan, num_pos_inf + num_neg_inf, num_zero, "min", "max", abs_min, abs_max, center, dev_sum, abs_sum,
                dev_square_sum) AS stored"""
_MERGED = ", ".join(f'{sql} AS "{name}"' for name, sql in merged_sql(("square_sum",), PLAIN).items())
_SITE = "step, layer, tensor"
_TOGETHER = f"""
        SELECT {_SITE}, {{merged}}, sum(stored) AS stored, min(rank) AS rank, min(ord) FILTER (ord >= 0) AS ord,
            CASE WHEN count(DISTINCT cls) = 1 THEN min(cls) ELSE '' END AS cls,
            CASE WHEN count(DISTINCT dtype) = 1 THEN min(dtype) ELSE '' END AS dtype
        FROM ({about_one_center(f"(SELECT *, {_STORED} FROM {RAW} WHERE {{where}})", _SITE)}) GROUP BY {_SITE}
""".replace("{merged}", _MERGED)
# The same of sites that have one row each: no sorting, no grouping. A sum begins with 0, so it is never -0.
_SUMMED = ", ".join(f"0e0 + {name} AS {name}" for name in (*SUMS, "square_sum"))
_ALONE = f"SELECT * REPLACE (CASE WHEN ord >= 0 THEN ord END AS ord, {_SUMMED}), {_STORED} FROM {RAW}"
_WITH_STATISTICS = f"""
        SELECT step, layer, tensor, cls, dtype, rank, ord, numel,
            {", ".join(f"{STATISTICS[name].sql} AS {name}" for name in ("rms", "mean", "std"))},
            abs_max AS amax, abs_min, num_zero / nullif(numel, 0) AS num_zero, num_nan / nullif(numel, 0) AS num_nan,
            (num_pos_inf + num_neg_inf) / nullif(numel, 0) AS num_inf, stored
        FROM ({{merged}})
"""


def pair(con: DuckDBPyConnection, name: str, a: str, b: str, layers: str, steps: str) -> None:
    """Makes the table ``name``: both runs' numbers of each aligned site and step, and their divergences ``d_rms`` and so on.

    Gradients on their way back carry the loss's scale, which GradScaler, and a mean over each rank's own batch, set differently in two
    runs. A factor that all gradients of a step share is divided out; it is in the column ``factor``. Gradients of weights are as the
    optimizer gets them, so they keep theirs. ``load`` made the tables ``a`` and ``b``; ``layers`` and ``steps`` have columns of these
    names, to compare. It is meant for some steps at a time, see ``portions``.
    """
    values = ", ".join(f"x.{s} AS a_{s}, CASE WHEN same THEN x.{s} ELSE y.{s} END AS b_{s}" for s in STATS)
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE {name}_raw AS
        SELECT x.step AS step_a, y.step AS step_b, x.layer AS layer_a, y.layer AS layer_b, x.cls, x.tensor, x.dtype AS dtype_a,
            y.dtype AS dtype_b, x.rank, x.ord, x.numel AS numel_a, y.numel AS numel_b, x.stored = y.stored AS same,
            x.tensor IN ('gradient', 'dgrad') AS scaled, {values}
        FROM {joined(a, b, layers, steps)}
    """)
    # A factor is one if it is the same to a twentieth at most of several places; rounding alone moves no median by more than that.
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE {name}_factors AS
        WITH logs AS (SELECT step_a, log2(b_rms / a_rms) AS l FROM {name}_raw WHERE scaled AND a_rms > 0 AND b_rms > 0)
        SELECT step_a, pow(2e0, CASE WHEN abs(median(l) - round(median(l))) < 0.07 THEN round(median(l)) ELSE median(l) END) AS factor
        FROM logs GROUP BY step_a
        HAVING count(*) >= 3 AND abs(median(l)) > 0.5 AND quantile_cont(l, 0.8) - quantile_cont(l, 0.2) < 0.07
    """)
    lifted = ", ".join(f"b_{s} / coalesce(factor, 1e0) AS b_{s}" for s in ("rms", "mean", "std", "amax", "abs_min"))
    eps = f"greatest({_epsilon('dtype_a')}, {_epsilon('dtype_b')})"
    divergences = {
        "rms": _relative("a_rms", "b_rms"),
        "mean": _beside("mean"),
        "std": _beside("std"),
        "amax": _relative("a_amax", "b_amax"),
        "abs_min": "CASE WHEN a_abs_min > 0 AND b_abs_min > 0 THEN "
        "least(1e0, abs(log2(greatest(a_abs_min, e * r)) - log2(greatest(b_abs_min, e * r))) / 64) END",
        "num_zero": "abs(a_num_zero - b_num_zero)",
        "num_nan": _share("num_nan"),
        "num_inf": _share("num_inf"),
    }
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE {name} AS
        WITH scaled AS (
            SELECT p.* REPLACE ({lifted}), factor
            FROM (SELECT p.*, CASE WHEN scaled THEN f.factor END AS factor FROM {name}_raw p LEFT JOIN {name}_factors f USING (step_a)) p
        ), ready AS (
            SELECT *, CASE WHEN a_rms IS NOT NULL AND b_rms IS NOT NULL THEN greatest(a_rms, b_rms) END AS r, {eps} AS e FROM scaled
        )
        SELECT * EXCLUDE (r, e, scaled), {", ".join(f"{sql} AS d_{stat}" for stat, sql in divergences.items())},
            CASE WHEN a_num_nan + a_num_inf > 0 AND b_num_nan + b_num_inf = 0 THEN 'a'
                 WHEN b_num_nan + b_num_inf > 0 AND a_num_nan + a_num_inf = 0 THEN 'b' ELSE '' END AS nonfinite_in
        FROM ready
    """)
    con.execute(f"DROP TABLE {name}_raw")


def joined(a: str, b: str, layers: str, steps: str) -> str:
    """SQL of the rows ``x`` of one run and ``y`` of the other that are compared."""
    return f"""{steps} s JOIN {a} x ON x.step = s.a JOIN {layers} l ON l.a = x.layer
            JOIN {b} y ON y.step = s.b AND y.layer = l.b AND y.tensor = x.tensor"""


def portions(con: DuckDBPyConnection, steps: str, a: str) -> Iterator[str]:
    """The name of a table with some of the ``steps`` after the other, in the order of A's: about ``PORTION`` of its rows each."""
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE {steps}_apart AS
        SELECT s.a, s.b, sum(n) OVER (ORDER BY s.a) // {PORTION} AS portion
        FROM {steps} s JOIN (SELECT step, count(*) AS n FROM {a} GROUP BY step) x ON x.step = s.a
    """)
    for (number,) in con.execute(f"SELECT DISTINCT portion FROM {steps}_apart ORDER BY portion").fetchall():
        con.execute(f"CREATE OR REPLACE TEMP TABLE {steps}_some AS SELECT a, b FROM {steps}_apart WHERE portion = {int(number)}")
        yield f"{steps}_some"


def _relative(a: str, b: str) -> str:
    return (
        f"CASE WHEN greatest({a}, {b}) = 0 THEN 0e0 WHEN {a} IS NOT NULL AND {b} IS NOT NULL THEN abs({a} - {b}) / greatest({a}, {b}) END"
    )


def _beside(stat: str) -> str:  # no least(1, …): it ignores a NULL and returns 1
    return f"CASE WHEN r = 0 THEN 0e0 WHEN abs(a_{stat} - b_{stat}) > r THEN 1e0 ELSE abs(a_{stat} - b_{stat}) / r END"


def _share(stat: str) -> str:
    return f"CASE WHEN (a_{stat} > 0) <> (b_{stat} > 0) THEN 1e0 ELSE abs(a_{stat} - b_{stat}) END"


def calibrate(con: DuckDBPyConnection, *, cumulative: bool) -> None:
    """Makes the tables ``limits`` (each site's noise) and ``kinds`` (that of its kind of tensor) from ``noise_pairs``, which hold an A/A
    pair's divergences.

    A site's noise is the largest divergence that the pair shows at it up to that step (two runs part further with every step, so later
    noise must not excuse an early difference), or the ninth decile of that over its kind of tensor if that is more: a pair is one sample a
    step, and by luck a small one. A site at which the pair is bit for bit the same has no noise at all.

    Args:
        cumulative: noise of later steps counts for later ones only; False: all of it for all.
    """
    window = "OVER (PARTITION BY layer_a, tensor ORDER BY step_a)" if cumulative else "OVER (PARTITION BY layer_a, tensor)"
    most = ", ".join(f"max(d_{s}) {window} AS n_{s}" for s in STATS)
    # What stands before the pair's first step is judged by that step.
    since = "CASE WHEN step_a = min(step_a) OVER () THEN -1 ELSE step_a END" if cumulative else "-1"
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE limits AS
        SELECT DISTINCT ON (layer_a, tensor, since) layer_a, tensor, {since} AS since, bool_and(same) {window} AS exact,
            {MARGIN:e} + {FIRST_MARGIN:e} / count(*) {window} AS margin, {most}
        FROM noise_pairs
    """)
    deciles = ", ".join(f"quantile_cont(n_{s}, 0.9) FILTER (NOT exact) AS k_{s}" for s in STATS)
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE kinds AS
        SELECT split_part(tensor, '[', 1) AS kind, since, min(margin) AS margin, {deciles} FROM limits GROUP BY ALL
    """)


def judge(
    con: DuckDBPyConnection, tolerances: Mapping[str, float], stats: tuple[str, ...], *, calibrated: bool, few: bool, staged: bool
) -> None:
    """Makes the table ``judged``: ``pairs`` with a tolerance a statistic (``t_rms``, …) and ``severity``, a divergence over its tolerance.

    It is the largest of the statistics'; above 1 a site diverges. ``place`` orders a step: forward from the first stage to the last,
    backward from the last.

    Args:
        tolerances: by statistic; beside noise the least that a tolerance may be.
        stats: those to judge by.
        calibrated: by the tables that ``calibrate`` made; else by the tolerances alone.
        few: without noise too, a few zeros that come and go in a small tensor are none.
        staged: several ranks wrote what is compared: stages of a pipeline.
    """
    if not calibrated:
        spared = f", {FEW:e} / numel_a" if few else ""
        limits = ", ".join(f"greatest({tolerances[s]:.17e}{spared if s == 'num_zero' else ''}) AS t_{s}" for s in STATS)
        source = "pairs"
    else:
        limits = ", ".join(
            f"greatest({tolerances[s]:.17e}, CASE WHEN exact THEN 0e0 ELSE greatest(margin * greatest(n_{s}, k_{s})"
            + (f", {FEW:e} / numel_a" if s == "num_zero" else "")
            + f") END) AS t_{s}"
            for s in STATS
        )
        source = f"""(
            SELECT p.*, exact, coalesce(n.margin, k.margin) AS margin, {", ".join(f"n_{s}, k_{s}" for s in STATS)}
            FROM (SELECT *, split_part(tensor, '[', 1) AS kind FROM pairs) p
            ASOF LEFT JOIN limits n ON n.layer_a = p.layer_a AND n.tensor = p.tensor AND p.step_a >= n.since
            ASOF LEFT JOIN kinds k ON k.kind = p.kind AND p.step_a >= k.since)"""
    severity = ", ".join(f"d_{s} / t_{s}" for s in stats)
    one_sided = f"CASE WHEN nonfinite_in <> '' THEN {ONE_SIDED:e} END" if {"num_nan", "num_inf"} & set(stats) else "0e0"
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE judged AS
        WITH limited AS (SELECT *, {limits} FROM {source})
        SELECT limited.*, coalesce(greatest({severity}, {one_sided}), 0e0) AS severity,
            CASE WHEN NOT {staged} THEN [0, 0] WHEN tensor IN ('activation', 'output') THEN [0, rank]
                 WHEN tensor IN ('gradient', 'dgrad') THEN [1, -rank] ELSE [2, rank] END AS place
        FROM limited
    """)
