"""The views of a run and their columns, in words: what ``numscope stats RUN columns`` lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from numscope.records.observation import PRECISION
from numscope.runs.folder import Run
from numscope.runs.query import OPTIMIZER, RAW, STEPS, VIEW, QueryResult, columns_of, is_internal, reading
from numscope.summary.statistics import STATISTICS

COLUMNS = ("view", "column", "unit", "meaning")
_VALUE = "the tensor's"
_UNITS = {"value": _VALUE, "value^2": f"{_VALUE}, squared", "count": "elements", "counts": "elements", "log2": "powers of two"}
_UNITS |= {"ratio": ""}

# By name, the unit and the meaning of what a run stores. Statistics are described where their formulas are.
STORED = {
    "step": ("", "training step, from 0"),
    "layer": ("", "the layer's name, behind its model's if the run has several (Critic.fc1); loss: the tensor that backward was called on"),
    "cls": ("", "the layer's class"),
    "tensor": ("", "in reports' words: activation: input; gradient: grad output; wgrad: grad weight; dgrad: grad input; weight; output; …"),
    "dtype": ("", "the tensor's dtype"),
    "ord": ("", "place in the step"),
    "rank": ("", "who wrote the row"),
    "attempt": ("", "which start of that rank, from 1"),
    "ranks": ("ranks", "how many ranks the row was merged from"),
    "calls": ("tensors", "how many tensors a rank merged into the row"),
    "time": ("UTC", "when the row was written"),
    "numel": ("elements", "all elements"),
    "num_pos_inf": ("elements", "those that are inf"),
    "num_neg_inf": ("elements", "those that are -inf"),
    "num_zero": ("elements", "zeros of either sign"),
    "num_subnormal": ("elements", "those below the smallest normal magnitude of the dtype"),
    "abs_max": (_VALUE, "largest magnitude"),
    "sum": (_VALUE, "sum(x)"),
    "square_sum": (f"{_VALUE}, squared", "sum(x^2)"),
    "cube_sum": (f"{_VALUE}, cubed", "sum(x^3)"),
    "fourth_sum": (f"{_VALUE}^4", "sum(x^4)"),
    "center": (_VALUE, "what the dev_… sums are about: an element where the mean is far above the deviation, else 0"),
    "dev_sum": (_VALUE, "sum(x - center)"),
    "dev_square_sum": (f"{_VALUE}, squared", "sum((x - center)^2)"),
    "dev_cube_sum": (f"{_VALUE}, cubed", "sum((x - center)^3)"),
    "dev_fourth_sum": (f"{_VALUE}^4", "sum((x - center)^4)"),
    "abs_sum": (_VALUE, "sum(|x|)"),
}
OF_STEPS = {
    "step": STORED["step"],
    "loss": ("the loss's", "mean of the losses of all models, without GradScaler's scale; nan or inf where one of them is"),
    "learning_rate": ("", "largest of the optimizers'; null where the run did not record it"),
}


def columns(run: Run) -> QueryResult:
    """A row for each column of the run's views: what is asked for in ``stats``, one row a step in ``steps``, the rest in ``raw``.

    Raises: UsageError where the run can't be read.
    """
    views = reading(run, lambda connection: {view: list(columns_of(connection, view)) for view in (VIEW, STEPS, RAW)})
    views[RAW] = [name for name in views[RAW] if is_internal(name)]
    return QueryResult(COLUMNS, [(view, name, *_told(view, name)) for view, names in views.items() for name in names])


def _told(view: str, name: str) -> tuple[str, str]:
    """A column's unit and meaning."""
    if view == STEPS:
        return OF_STEPS[name]
    if view == VIEW and name in STATISTICS:
        return _UNITS.get(STATISTICS[name].unit, STATISTICS[name].unit), STATISTICS[name].formula
    if name in STORED:
        return STORED[name]
    if name.startswith(OPTIMIZER):
        return "", f"{name.removeprefix(OPTIMIZER)} of each of the optimizers' groups, on the loss's rows"
    if name.startswith(PRECISION):
        return "", "a parameter's gradient beside the one in high precision, on rows of wgrad_error (--check precision)"
    users = list(_users(name))
    return (
        "",
        f"what {', '.join(users)} {'is' if len(users) == 1 else 'are'} made of"
        if users
        else "of a statistic with options, or of one of your own",
    )


def _users(name: str) -> Iterator[str]:
    """The statistics that are computed from a column."""
    for statistic in STATISTICS.values():
        if statistic.sql is not None and re.search(rf"\b{re.escape(name)}\b", statistic.sql):
            yield statistic.name
