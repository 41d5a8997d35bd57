"""Delivers findings to the terminal, a JSON file, and a folder with one file per rank."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from numscope.records.finding import Finding, Frame
from numscope.records.words import escape
from numscope.report.frames import HEADER, NUM_FRAMES, batch_line, finding_text, frame_text, one_line
from numscope.report.json import write_findings

log = logging.getLogger("numscope")


@dataclass(slots=True)
class _Share:
    """What models watched at the same time write to the same files: a later one must not overwrite an earlier one's findings."""

    open: int = 0
    findings: list[Finding] = field(default_factory=list)
    contained: list[Finding] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    steps: int = 0
    batches: int = 0
    events: list[tuple[int, str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


_shares: dict[tuple[str | None, str | None], _Share] = {}


class Delivery:
    """Reports findings as they come and writes the files at the end.

    Args:
        json: file for all findings; on ranks other than 0 the rank is inserted before its suffix.
        log_dir: folder for ``report-rank<r>.txt`` (reports with all frames) and ``findings-rank<r>.json``.
        rank: this process's.
    """

    def __init__(self, json: str | None, log_dir: str | None, model: str, rank: int) -> None:
        self._json = None if json is None else _of_rank(json, rank)
        self._log_dir = log_dir
        self._model = model
        self._rank = rank
        self._files = (self._json, log_dir)
        self._share = _Share() if self._files == (None, None) else _shares.setdefault(self._files, _Share())
        self._share.open += 1

    def finding(self, finding: Finding) -> None:
        """Report a finding: in full on the rank where it began, in one line elsewhere."""
        if finding.rank == self._rank:
            if len(finding.frames) > NUM_FRAMES:  # the report shows the last few; all are printed above it
                frames = "\n".join(map(escape, finding_text(finding).split("\n")))
                print(f"\n{frames}\n", file=sys.stderr)
            _print(finding)
        else:
            print(f"numscope: rank {self._rank}: {one_line(finding)}", file=sys.stderr)
        self._share.text.append(f"{one_line(finding)}\n\n{finding_text(finding)}\n")

    def contained(self, finding: Finding) -> None:
        """Log a contained finding: as a warning with its line if the script skipped a batch because of it."""
        log.log(logging.WARNING if finding.note else logging.INFO, "%s", one_line(finding))

    def event(self, step: int, text: str) -> None:
        """Log an event that is not a finding."""
        log.info("step %d: %s", step, text)

    def trace(self, batch: int, frames: Sequence[Frame]) -> None:
        """Print a traced batch's frames."""
        text = "\n".join([batch_line(batch), HEADER, *map(frame_text, frames)])
        print(text)
        self._share.text.append(text)

    def close(
        self, findings: Sequence[Finding], contained: Sequence[Finding], events: Sequence[tuple[int, str]], steps: int, batches: int
    ) -> None:
        """Write the files, together with what models watched at the same time had to report."""
        share = self._share
        share.open -= 1
        if not share.open:
            _shares.pop(self._files, None)
        share.models.insert(0, self._model)  # the last model watched is closed first
        share.findings[:0] = findings
        share.contained[:0] = contained
        share.events = sorted({*share.events, *events})
        share.steps = max(share.steps, steps)
        share.batches += batches
        meta = {
            "model": ", ".join(share.models),
            "rank": self._rank,
            "steps": share.steps,
            "batches": share.batches,
            "events": [list(e) for e in share.events],
        }
        try:
            if self._json is not None:
                write_findings(self._json, share.findings, share.contained, meta)
            if self._log_dir is not None:
                os.makedirs(self._log_dir, exist_ok=True)
                write_findings(os.path.join(self._log_dir, f"findings-rank{self._rank}.json"), share.findings, share.contained, meta)
                if share.text:
                    with open(os.path.join(self._log_dir, f"report-rank{self._rank}.txt"), "w", encoding="utf-8") as file:
                        file.write("\n".join(share.text))
        except Exception as error:  # must not end the run
            log.error("numscope could not write its files: %s: %s", type(error).__name__, error)


def _print(finding: Finding) -> None:
    state = random.getstate()  # rich draws numbers from the script's generator, as it is imported and for each link
    try:
        from numscope.report.text import print_finding

        print_finding(finding, file=sys.stderr)
    finally:
        random.setstate(state)


def _of_rank(path: str, rank: int) -> str:
    stem, suffix = os.path.splitext(path)
    return path if rank == 0 else f"{stem}-rank{rank}{suffix}"
