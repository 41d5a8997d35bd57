"""``numscope doctor``: which rank, host or link is broken."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import click

from numscope.cli.printing import note
from numscope.cli.values import Expected, Value, json_option, whole_number
from numscope.doctor.explain import run
from numscope.doctor.launcher import num_gpus, run_local, run_node
from numscope.doctor.meet.identity import identify, in_batch_script
from numscope.doctor.meet.meeting_point import split_endpoint
from numscope.doctor.meet.secret import NoSecret
from numscope.doctor.output import Output
from numscope.doctor.rank import examine
from numscope.doctor.records import Settings
from numscope.doctor.settings import NAMES, read_settings
from numscope.records.errors import UsageError
from numscope.records.files import read_json


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


def _settings(path: str) -> tuple[str, dict[str, Any]]:
    """The path, and what the file asks for."""
    try:
        return path, read_settings(path)
    except OSError as error:
        raise Expected(f"a file that can be read. {error.strerror}.") from None
    except ValueError as error:
        raise Expected(f"a file of settings. {error}") from None


@click.group(
    invoke_without_command=True,
    options_metavar="[options]",
    subcommand_metavar="[explain PATH…]",
)
@click.option("--quick", is_flag=True, help="Use the smallest sizes, fewer links and no compute phase.")
@click.option("--ifname", metavar="NAME", help="The network interface to use, such as eth0.")
@json_option("Write the report as JSON")
@click.option("--baseline", type=Value("FILE", _report), help="Compare with this earlier report (--json).")
@click.option("--redact", is_flag=True, help="Replace host names and addresses.")
@click.option("--nproc", type=whole_number(1), help="Ranks to start on this node (one per GPU, else 2).")
@click.option("--nnodes", type=whole_number(1), help="Number of nodes. The one on the endpoint's host prints the others' line.")
@click.option("--endpoint", metavar="HOST:PORT", help="Where nodes or ranks meet: one of the hosts, and a free port.")
@click.option("--settings", "file", type=Value("FILE", _settings), help=f"A YAML file with rarely needed settings: {', '.join(NAMES)}.")
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    json_to: str | None,
    baseline: Mapping[str, Any] | None,
    nproc: int | None,
    nnodes: int | None,
    file: tuple[str, dict[str, Any]] | None,
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

    Exit status: 0 healthy; 1 a fault was found; 2 wrong usage; 3 something failed, and the cause is unknown; 4 degraded (with strict);
    5 incomplete; 70 an internal error.
    """
    if ctx.invoked_subcommand is not None:
        return None
    path, asked = file or ("", {})
    if "node_rank" in asked and (nnodes is None or asked["node_rank"] >= nnodes):
        expected = "--nnodes N beside it" if nnodes is None else f"0 to {nnodes - 1}, since --nnodes is {nnodes}"
        raise UsageError(f"--settings: node_rank: got {asked['node_rank']}, expected {expected}.")
    given = {**asked, "file": path, **{name: value for name, value in options.items() if value is not None}}
    return partial(_examine, given, json_to or "", baseline or {}, nproc, nnodes)


@doctor.command(short_help="Explain logs of NCCL and torchrun, and flight-recorder dumps.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@json_option("Write the findings as JSON")
@click.option("--redact", is_flag=True, help="Replace host names and addresses.")
def explain(paths: tuple[str, ...], json_to: str | None, redact: bool) -> Callable[[], NoReturn]:
    """Explain NCCL's logs (NCCL_DEBUG=INFO), flight-recorder dumps and torchrun's output. PATH: files or folders."""
    return lambda: _end(run(paths, json_to or "", redact=redact))


def _examine(given: Mapping[str, Any], json_to: str, baseline: Mapping[str, Any], nproc: int | None, nnodes: int | None) -> NoReturn:
    settings, output = Settings(**given), Output(json_to, baseline)
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
            code = run_node(settings, nnodes, nproc or num_gpus(os.environ) or 2, os.environ, output)
        else:
            reason = "" if nproc else in_batch_script(os.environ)
            if reason:
                raise UsageError(reason)
            if settings.endpoint:
                split_endpoint(settings.endpoint)  # refused
                note("--endpoint: not used, since only ranks of this node meet. Add --nnodes N to check several nodes.")
            code = run_local(settings, nproc or num_gpus(os.environ) or 2, output)
    except UsageError as error:
        if not (isinstance(error, NoSecret) and identity is not None and identity.local_rank):  # it is the same for all ranks of a node
            note(error)
        code = error.exit_status
    _end(code)


def _end(code: int) -> NoReturn:
    """Ends the process at once, without waiting for threads that hang."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader has gone
            pass
    os._exit(code)
