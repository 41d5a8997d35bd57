"""The last lines of ``numscope run``, word by word."""

from __future__ import annotations

import pytest

from numscope.scope.coverage import Watched
from numscope.scope.last_line import last_line, next_step

NET = Watched(["Net"], steps=120, tensors=14160)
BLIND = Watched(gaps=["Net: torch.jit runs it without Python"])


@pytest.mark.parametrize(
    ("own", "children", "said"),
    [
        (NET, [], "watched Net, 120 steps, 14,160 tensor observations: no finding"),
        (
            Watched(["A", "B", "C", "D", "E"], 1, 1, ["x", "y"], contained=1, skipped=3),
            [],
            "watched A, B, C and 2 more, 1 step, 1 tensor observation: 2 findings, 1 contained note, 3 skipped steps",
        ),
        (Watched(["Net"], 2, detecting=False), [], "watched Net, 2 steps: detection was off"),
        (Watched(["Net"], 2, alerts=["a"], detecting=False), [], "watched Net, 2 steps: detection was off, 1 alert"),
        (Watched(["Net"], 2, 5, alerts=["a", "b"], more_alerts=3), [], "watched Net, 2 steps, 5 tensor observations: no finding, 5 alerts"),
        (
            Watched(),
            [Watched(["Net"], 2, 5, alerts=["a", "b"]), Watched(["Net"], 2, 5, alerts=["b"])],
            "watched Net in 2 child processes, 2 steps each, 10 tensor observations: no finding, 2 alerts",
        ),
        (
            Watched(["Net"], 2, 5, gaps=["a: x", "b: y"]),
            [],
            "watched Net, 2 steps, 5 tensor observations: no finding. Not watched: a: x; b: y",
        ),
        (Watched(["Net"], 2, 5, world_size=8), [], "watched Net on rank 0 of 8, 2 steps, 5 tensor observations: no finding"),
        (Watched(), [], "nothing was watched: no reason"),
        (BLIND, [Watched()], "nothing was watched: Net: torch.jit runs it without Python"),
        (Watched(), [NET], "watched Net in 1 child process, 120 steps, 14,160 tensor observations: no finding"),
        (Watched(), [NET, NET], "watched Net in 2 child processes, 120 steps each, 28,320 tensor observations: no finding"),
        (
            NET,
            [Watched(["Net"], 2, 5, ["x"]), Watched(["Net"], 3, 5, ["x"]), BLIND],
            "watched Net, 120 steps, 14,160 tensor observations: no finding; "
            "Net in 2 child processes, up to 3 steps each, 10 tensor observations: 1 finding. "
            "Not watched: Net: torch.jit runs it without Python",
        ),
        (
            Watched(["Net", "Net_2"], 6, 5, steps_of={"Net": 6, "Net_2": 3}),
            [],
            "watched Net (6 steps), Net_2 (3 steps), 5 tensor observations: no finding",
        ),
        (
            Watched(["Net", "Net_2"], 6, 5, steps_of={"Net": 6, "Net_2": 6}),
            [],
            "watched Net, Net_2, 6 steps, 5 tensor observations: no finding",
        ),
        (
            Watched(["Net", "Teacher"], 6, 5, steps_of={"Net": 6, "Teacher": 0}),
            [],
            "watched Net, Teacher, 6 steps, 5 tensor observations: no finding",
        ),
        (
            Watched(["Net"], 6, 5, contained=3, without_gradients=["nan without gradients: aten.log at a.py:3", "b"]),
            [],
            "watched Net, 6 steps, 5 tensor observations: no finding, 3 contained notes "
            "(nan without gradients: aten.log at a.py:3 and 1 more)",
        ),
        (
            Watched(gaps=[f"{letter}: why" for letter in "abcdefg"]),
            [],
            "nothing was watched: a: why; b: why; c: why; d: why; e: why and 2 more",
        ),
    ],
)
def test_last_line_says_what_was_watched_and_what_was_not(own: Watched, children: list[Watched], said: str) -> None:
    assert last_line(own, children, "no reason") == f"numscope: {said}"


NEWS = Watched(["Net"], 2, 5, findings=["x"])
KEEP = "with --log-dir DIR the run's records are kept: a page, and how each number came there"


@pytest.mark.parametrize(
    ("log_dir", "processes", "said"),
    [
        (None, [NET], ""),
        (None, [NEWS], KEEP),
        (None, [NET, Watched(["Net"], 1, alerts=["a"])], KEEP),
        ("runs/t5", [NET], "its numbers, or its page\n  numscope stats runs/t5\n  numscope view runs/t5"),
        ("runs/my t5\x1b[2J", [NEWS], "its numbers\n  numscope stats 'runs/my t5\\x1b[2J'"),
        (
            "s3://me:secret@host/run",
            [NET],
            "its numbers, or its page\n  numscope stats 's3://me:[hidden]@host/run'\n  numscope view 's3://me:[hidden]@host/run'",
        ),
        ("t5", [Watched(["Net"], 1, alerts=["a"])], "its numbers, or its page\n  numscope stats t5\n  numscope report t5"),
        ("runs/t5", [Watched()], ""),
    ],
)
def test_what_to_type_next(log_dir: str | None, processes: list[Watched], said: str) -> None:
    assert next_step(log_dir, processes) == (f"numscope: next: {said}" if said else "")
