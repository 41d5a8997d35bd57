"""``numscope doctor``: which rank, host or link is broken."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import click

from numscope.cli.printing import say
from numscope.cli.values import Expected, Value, listed, output_file, real, whole_number
from numscope.doctor.explain.command import run
from numscope.doctor.launch import num_gpus, run_local, run_node
from numscope.doctor.meet.identity import identify, in_batch_script
from numscope.doctor.meet.secret import NoSecret, read_secret
from numscope.doctor.output import Output
from numscope.doctor.rank import examine
from numscope.doctor.records import Phase, Settings
from numscope.records.errors import UsageError
from numscope.records.files import read_json
from numscope.records.words import nearest

BACKENDS = ("gloo", "nccl")
DEFAULT = Settings()
LEAST_DEADLINE_S = 10.0
LABELS = [phase.label for phase in Phase]
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _phase(word: str) -> Phase:
    names = {name: phase for phase in Phase for name in (phase.label, str(phase.value))}
    if word not in names:
        known = ", ".join(f"{phase.value} ({phase.label})" for phase in Phase)
        raise Expected(f"one of {known}.{nearest(word, LABELS)}")
    return names[word]


def _size(word: str) -> int:
    """Bytes, with units of 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", word.lower())
    if match is None or not 8 <= int(match[1]) * _UNITS[match[2]] <= 4 << 30:
        raise ValueError
    return int(match[1]) * _UNITS[match[2]]


def _backends(text: str) -> str:
    if not {*text.split(",")} <= {*BACKENDS}:
        raise ValueError
    return text


def _report(path: str) -> Mapping[str, Any]:
    """An earlier JSON report."""
    rule = "a file written by numscope doctor --json."
    try:
        report = read_json(os.path.realpath(path))
    except OSError as error:
        raise Expected(f"{rule} {error.strerror}.") from None
    except ValueError as error:
        raise Expected(f"{rule} It is not JSON: {error}.") from None
    if not isinstance(report, dict):
        raise Expected(f"{rule} It does not contain a JSON object.")
    if not isinstance(report.get("measured"), dict):
        raise Expected(f'{rule} It does not contain "measured".')
    return report


def _secret(path: str) -> str:
    """The job's secret in a file."""
    try:
        return read_secret(path)
    except OSError as error:
        raise Expected(f"a file that can be read. {error.strerror}.") from None
    except ValueError as error:
        raise Expected(f"{error}.") from None


_PHASES = Value("N,N…", lambda text: tuple(sorted({_phase(word.strip()) for word in text.split(",")})))
_SIZES = listed("BYTES,…", _size, "comma-separated sizes from 8 bytes to 4G, such as 8,1M,64M")
_BACKENDS = Value("|".join((*BACKENDS, ",".join(BACKENDS))), _backends, f"{', '.join(BACKENDS)} or both, comma-separated")
_JSON = Value("FILE", lambda text: text if text == "-" else output_file(text))


@click.group(
    invoke_without_command=True,
    options_metavar="[options]",
    subcommand_metavar="[explain PATH…]",
)
@click.option("--quick", is_flag=True, help="Use the smallest sizes, fewer links and no compute phase.")
@click.option("--phases", type=_PHASES, help=f"Run only these, by number or name, and the phases they need: {', '.join(LABELS)}.")
@click.option(
    "--deadline",
    "deadline_s",
    type=real(f"seconds, at least {LEAST_DEADLINE_S:g}", LEAST_DEADLINE_S),
    help=f"Seconds for the whole examination ({DEFAULT.deadline_s:g}).",
)
@click.option("--timeout-scale", type=real("a factor, at least 0.01", 0.01), help="Factor on every time limit: 2 for a slow network.")
@click.option("--ifname", metavar="NAME", help="The network interface to use, such as eth0.")
@click.option("--backend", type=_BACKENDS, help="Backends of torch.distributed (gloo, and nccl if there are GPUs).")
@click.option("--sizes", type=_SIZES, help="Payload sizes between ranks (8,1M,64M).")
@click.option("--json", "json_path", type=_JSON, help="Write the report to this file as JSON; - for standard output.")
@click.option("--baseline", type=Value("FILE", _report), help="Compare with this earlier report (--json).")
@click.option("--strict", is_flag=True, help="Exit with 4 if something is degraded.")
@click.option("--redact", is_flag=True, help="Replace host names and addresses.")
@click.option("--nproc", type=whole_number(1), help="Ranks to start on this node (one per GPU, else 2).")
@click.option("--nnodes", type=whole_number(1), help="Number of nodes. The one on the endpoint's host prints the others' line.")
@click.option("--endpoint", metavar="HOST:PORT", help="Where nodes or ranks meet: one of the hosts, and a free port.")
@click.option("--node-rank", type=whole_number(0), help="This node's number, 0 on the endpoint's host; assigned if omitted.")
@click.option(
    "--token-file",
    "token",
    type=Value("FILE", _secret),
    help="A file with the job's secret, which only you can read; or set NUMSCOPE_DOCTOR_TOKEN. Made where the launcher can hand it on.",
)
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

    By itself it starts ranks on this node. Under a launcher it is one of the launcher's ranks:

    \b
    numscope doctor
    torchrun --nproc-per-node 8 … -m numscope doctor
    srun numscope doctor
    mpirun … numscope doctor --endpoint HOST:PORT
    numscope doctor --nnodes 2 --endpoint HOST:PORT     on HOST, which prints the other nodes' line

    Exit status: 0 healthy; 1 a fault was found; 2 wrong usage; 3 something failed, and the cause is unknown; 4 degraded (with --strict);
    5 incomplete; 70 an internal error.
    """
    if ctx.invoked_subcommand is not None:
        return None
    settings = Settings(**{name: value for name, value in options.items() if value is not None})
    if node_rank is not None and nnodes is None:
        raise UsageError(f"--node-rank: got {node_rank} without --nnodes, expected both. Add --nnodes N.")
    if node_rank is not None and nnodes is not None and node_rank >= nnodes:
        raise UsageError(f"--node-rank: got {node_rank}, expected 0 to {nnodes - 1}, since --nnodes is {nnodes}.")
    return partial(_examine, settings, json_path or "", baseline or {}, nproc, nnodes, node_rank)


@doctor.command(short_help="Explain logs of NCCL and torchrun, and flight-recorder dumps.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--json", "json_path", type=_JSON, help="Write the findings to this file as JSON; - for standard output.")
@click.option("--strict", is_flag=True, help="Exit with 4 if something is degraded.")
@click.option("--redact", is_flag=True, help="Replace host names and addresses.")
def explain(paths: tuple[str, ...], json_path: str | None, strict: bool, redact: bool) -> Callable[[], NoReturn]:
    """Explain NCCL's logs (NCCL_DEBUG=INFO), flight-recorder dumps and torchrun's output. PATH: files or folders."""
    return partial(_explain, paths, json_path or "", strict, redact)


def _examine(
    settings: Settings, json_path: str, baseline: Mapping[str, Any], nproc: int | None, nnodes: int | None, node_rank: int | None
) -> NoReturn:
    output = Output(json_path, baseline)
    identity = None
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
        if not (isinstance(error, NoSecret) and identity is not None and identity.local_rank):  # it is the same for all ranks of a node
            say(f"numscope doctor: {error}", err=True)
        code = error.exit_status
    _end(code)


def _explain(paths: tuple[str, ...], json_path: str, strict: bool, redact: bool) -> NoReturn:
    _end(run(paths, json_path, redact=redact, strict=strict))


def _end(code: int) -> NoReturn:
    """Ends the process at once, without waiting for threads that hang."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader has gone
            pass
    os._exit(code)
