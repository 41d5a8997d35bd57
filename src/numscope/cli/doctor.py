"""``numscope doctor``: which rank, host or link is broken."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from numscope.cli.values import OutputFile, Real, Whole, _Value
from numscope.doctor.records import PHASES, Settings
from numscope.records.errors import UsageError

BACKENDS = ("gloo", "nccl")
DEFAULT = Settings()
LEAST_DEADLINE_S = 10.0
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Phases(_Value):
    """Numbers or names of phases, with commas in between."""

    name = "N,N…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        names = {word: number for number, name in enumerate(PHASES) for word in (name, str(number))}
        found = []
        for word in str(value).split(","):
            if word.strip() not in names:
                near = difflib.get_close_matches(word, PHASES, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                known = ", ".join(f"{number} ({name})" for number, name in enumerate(PHASES))
                self.fail(f"got {word!r}, expected one of {known}.{hint}", param, ctx)
            found.append(names[word.strip()])
        return tuple(sorted(set(found)))


class Sizes(_Value):
    """Bytes, with units of 1024 and commas in between."""

    name = "BYTES,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        found = []
        for word in str(value).split(","):
            match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", word.strip().lower())
            if match is None or not 8 <= int(match[1]) * _UNITS[match[2]] <= 4 << 30:
                self.refuse(value, "sizes from 8 bytes to 4G with commas in between, such as 8,1M,64M", param, ctx)
            found.append(int(match[1]) * _UNITS[match[2]])
        return tuple(found)


class Backends(_Value):
    """Backends of torch.distributed, with a comma in between."""

    name = "|".join((*BACKENDS, ",".join(BACKENDS)))

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        words = str(value).split(",") if value else []
        for word in words:
            if word not in BACKENDS:
                self.refuse(value, f"{', '.join(BACKENDS)} or both with a comma in between", param, ctx)
        return ",".join(words)


class JsonFile(_Value):
    """An earlier report."""

    name = "FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        try:
            report = json.loads(Path(str(value)).read_text(encoding="utf-8"))
        except OSError as error:
            self.refuse(value, f"a file that numscope doctor --json has written. {error.strerror}", param, ctx)
        except ValueError as error:
            self.refuse(value, f"a file that numscope doctor --json has written. It is no JSON: {error}", param, ctx)
        if not isinstance(report, dict):
            self.refuse(value, "a file that numscope doctor --json has written. It holds no JSON object", param, ctx)
        if not isinstance(report.get("measured"), dict):
            self.refuse(value, 'a file that numscope doctor --json has written. It holds no "measured"', param, ctx)
        return report


@click.group(
    invoke_without_command=True,
    options_metavar="[options]",
    subcommand_metavar="[explain PATH…]",
    short_help="Find the rank, host or link that is broken.",
)
@click.option("--quick", is_flag=True, help="The smallest sizes, no compute phase, fewer links.")
@click.option("--phases", type=Phases(), help=f"Only these, by number or name, and what they need: {', '.join(PHASES)}.")
@click.option(
    "--deadline",
    "deadline_s",
    type=Real(f"seconds, at least {LEAST_DEADLINE_S:g}", LEAST_DEADLINE_S),
    help=f"Seconds for all ({DEFAULT.deadline_s:g}).",
)
@click.option("--timeout-scale", type=Real("a factor, at least 0.01", 0.01), help="Of each phase's time: 2 for a slow network.")
@click.option("--ifname", metavar="NAME", help="The network interface to use, such as eth0.")
@click.option("--backend", type=Backends(), help="Of torch.distributed: gloo always, nccl where there are GPUs.")
@click.option("--sizes", type=Sizes(), help="Of the payloads between ranks (8,1M,64M).")
@click.option("--json", "json_path", type=OutputFile(), help="Write the report to this file, for other programs; - for standard output.")
@click.option("--baseline", type=JsonFile(), help="Compare with this earlier report (--json).")
@click.option("--strict", is_flag=True, help="Exit with 4 for what works but is degraded.")
@click.option("--redact", is_flag=True, help="Print no host names and addresses.")
@click.option("--nproc", type=Whole(), help="Ranks to start on this node (one per GPU, else 2).")
@click.option("--nnodes", type=Whole(), help="Nodes; start this command on each, with the same --endpoint.")
@click.option("--endpoint", metavar="HOST:PORT", help="Where nodes or ranks meet: a host among them and a free port.")
@click.option("--node-rank", type=Whole(), help="This node's number, 0 on the endpoint's host; given out if absent.")
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    json_path: str | None,
    baseline: Mapping[str, Any] | None,
    nproc: int | None,
    nnodes: int | None,
    node_rank: int | None,
    **options: Any,
) -> Callable[[], NoReturn] | None:
    """Find the rank, host or link that is broken, in seconds, without ever hanging.

    Alone it starts ranks on this node. Under a launcher it is one of the launcher's ranks:

    \b
    numscope doctor
    torchrun --nproc-per-node 8 … -m numscope doctor
    srun numscope doctor
    mpirun … numscope doctor --endpoint HOST:PORT
    numscope doctor --nnodes 2 --endpoint HOST:PORT     on each node

    Exit status: 0 healthy; 1 a fault is named; 2 wrong usage; 3 a fault that could not be attributed; 4 degraded (with --strict);
    5 incomplete; 70 an error of the doctor itself.
    """
    if ctx.invoked_subcommand is not None:
        return None
    settings = Settings(**{name: value for name, value in options.items() if value is not None})
    for name, value, least in (("nproc", nproc, 1), ("nnodes", nnodes, 1), ("node_rank", node_rank, 0)):
        if value is not None and value < least:
            _refuse(ctx, name, f"got {value}, expected a whole number, at least {least}.")
    if node_rank is not None and nnodes is None:
        _refuse(ctx, "node_rank", f"got {node_rank} without --nnodes, expected both. Add --nnodes N.")
    if node_rank is not None and nnodes is not None and node_rank >= nnodes:
        _refuse(ctx, "node_rank", f"got {node_rank}, expected one of 0 to {nnodes - 1}, as --nnodes {nnodes} says.")
    return partial(_examine, settings, json_path or "", baseline or {}, nproc, nnodes, node_rank)


@doctor.command(short_help="Say what logs of NCCL, flight recorder and torchrun mean.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--json", "json_path", type=OutputFile(), help="Write the findings to this file, for other programs.")
@click.option("--strict", is_flag=True, help="Exit with 4 for what works but is degraded.")
@click.option("--redact", is_flag=True, help="Print no host names and addresses.")
def explain(paths: tuple[str, ...], json_path: str | None, strict: bool, redact: bool) -> Callable[[], NoReturn]:
    """Say what NCCL's logs (NCCL_DEBUG=INFO), flight-recorder dumps and torchrun's output mean. Files or folders."""
    return partial(_explain, paths, json_path or "", strict, redact)


def _examine(
    settings: Settings, json_path: str, baseline: Mapping[str, Any], nproc: int | None, nnodes: int | None, node_rank: int | None
) -> NoReturn:
    from numscope.doctor.host import Output
    from numscope.doctor.launch import num_gpus, run_local, run_node
    from numscope.doctor.meet.identity import identify, in_batch_script
    from numscope.doctor.rank import examine

    output = Output(json_path, baseline)
    try:
        identity = identify(os.environ) if nnodes is None else None
        if identity is not None:
            if nproc is not None:
                raise UsageError(
                    f"--nproc: got {nproc}, but {identity.launcher} has started rank {identity.rank} of {identity.world_size} already, "
                    "expected one or the other. Leave out --nproc."
                )
            code = examine(identity, settings, os.environ, output)
        elif nnodes is not None:
            code = run_node(settings, nnodes, nproc or num_gpus(os.environ) or 2, node_rank, os.environ, output)
        else:
            reason = "" if nproc else in_batch_script(os.environ)
            if reason:
                raise UsageError(reason)
            code = run_local(settings, nproc or num_gpus(os.environ) or 2, output)
    except UsageError as error:
        click.echo(f"numscope doctor: {error}", err=True)
        code = error.exit_status
    _end(code)


def _explain(paths: tuple[str, ...], json_path: str, strict: bool, redact: bool) -> NoReturn:
    from numscope.doctor.explain.command import run

    _end(run(paths, json_path, redact=redact, strict=strict))


def _end(code: int) -> NoReturn:
    """Ends the process now: threads that hang in something are left behind."""
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads any more
            pass
    os._exit(code)


def _refuse(ctx: click.Context, name: str, message: str) -> NoReturn:
    """Refuses an option's value that is wrong beside another option."""
    param = next(param for param in ctx.command.params if param.name == name)
    raise click.BadParameter(message, ctx=ctx, param=param)
