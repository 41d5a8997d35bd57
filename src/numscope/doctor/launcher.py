"""Starts this node's ranks without torchrun: all ranks on one node, or one node's share of several nodes that meet at an endpoint.

On the endpoint's host the launcher hosts the hub (so that rank 0 is a rank like any other). It kills the ranks that are left at the end.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from numscope.doctor.budget import Deadline, share
from numscope.doctor.course import Course
from numscope.doctor.meet import wire
from numscope.doctor.meet.hub import HubTaken
from numscope.doctor.meet.identity import LAUNCHER, TORCHRUN
from numscope.doctor.meet.meeting_point import ENDPOINT, MeetingPoint, is_here, meet_at_endpoint, split_endpoint
from numscope.doctor.meet.members import NodeNumbers
from numscope.doctor.meet.messages import Place, Refused
from numscope.doctor.meet.road import Road, Unreached, look
from numscope.doctor.meet.secret import TOKEN, NoSecret, given_secret
from numscope.doctor.output import INCOMPLETE, Output, alone, show, write_lines
from numscope.doctor.phases.children import python_environ
from numscope.doctor.rank import SETTINGS, guard, on_signals, taken_about
from numscope.doctor.records import ExamPhase, Identity, Launcher, Settings, to_json

_AFTER_END_S = 3.0  # for ranks to end once they are released
_POLL_S = 0.02
_PARTING_S = 1.0


def _node(number: int, num_nodes: int, nproc: int, launcher: Launcher) -> Identity:
    """A node's first rank, which stands for the node."""
    return Identity(number * nproc, num_nodes * nproc, 0, nproc, number, num_nodes, socket.gethostname(), launcher)


def _ranks(node: Identity) -> tuple[int, ...]:
    return tuple(range(node.rank, node.rank + node.local_world_size))


def run_local(settings: Settings, nproc: int, output: Output) -> int:
    """Runs all ranks on this node; returns the exit code."""
    deadline = Deadline(settings.deadline_s)
    guard(deadline, "numscope", output.lines)
    meeting = MeetingPoint("127.0.0.1", (0,), secrets.token_hex(32), True, "this launcher", local=True)
    settings = replace(settings, endpoint="", token="")
    node = _node(0, 1, nproc, "local")
    course = Course(meeting, settings, nproc, deadline, output)
    return _run(node, settings, f"127.0.0.1:{course.hub.port}", meeting.token, deadline, output, course)


def run_node(settings: Settings, num_nodes: int, nproc: int, environ: Mapping[str, str], output: Output) -> int:
    """Runs this node's ranks; the nodes meet at ``settings.endpoint``. Returns the exit code.

    Raises: UsageError for an invalid endpoint, or if there is no secret and another host hosts the hub.
    """
    deadline = Deadline(settings.deadline_s)
    given = given_secret(settings, environ)
    meeting, numbered = meet_at_endpoint(settings, environ), settings.node_rank >= 0
    node = _node(max(settings.node_rank, 0), num_nodes, nproc, "nnodes")
    guard(deadline, "numscope", output.lines)
    if meeting.hosted:
        try:
            course = Course(meeting, settings, node.world_size, deadline, output, NodeNumbers(num_nodes, nproc, node.hostname))
            if not given and num_nodes > 1:
                write_lines(_to_paste(meeting, settings, num_nodes, nproc), 2)
            return _run(node, settings, meeting.at_home(course.hub.port).name, meeting.token, deadline, output, course)
        except HubTaken as taken:
            there = look(meeting, settings, 2.0) if not numbered else None
            if there is not None and there.kind == "token" and not given:
                raise NoSecret("nnodes") from None
            if numbered or there is not None:
                return show(*alone(node, settings, taken_about(meeting, settings, taken, _ranks(node))), output)
            # Another launcher of this job hosts the hub on this very host: this one is another "node".
    elsewhere = settings.node_rank > 0 or not is_here(meeting.host)
    road = Road(meeting, elsewhere=elsewhere, scale=settings.timeout_scale)
    with on_signals(_end_at_once):  # no rank is running yet
        request = {"kind": "node", "hostname": node.hostname, "nnodes": num_nodes, "nproc": nproc, "node_rank": settings.node_rank}
        try:
            with road.open(deadline.within(share(settings, ExamPhase.RENDEZVOUS))) as found:
                patience = deadline.within(5.0)
                wire.send(found, request, patience)
                place = wire.receive(found, patience, Place | Refused)
        except Unreached as why:
            return show(*alone(node, settings, why.about), output)
        except wire.WireError as error:
            lost = {"reached": True, "lost": error.kind, "sentence": str(error), "endpoint": meeting.name}
            return show(*alone(node, settings, lost), output)
    if place["kind"] == "refused":
        hub = {"reached": True, "endpoint": meeting.name}
        case = {"address": "this node", "kind": place["why"], "reason": place["reason"], "rank": -1, "hostname": node.hostname}
        return show(*alone(node, settings, hub, refused=(case,)), output)
    return _run(_node(place["node"], num_nodes, nproc, "nnodes"), settings, settings.endpoint, meeting.token, deadline, output, None)


def _to_paste(meeting: MeetingPoint, settings: Settings, num_nodes: int, nproc: int) -> list[str]:
    """The command for the other nodes, with the secret that was made here."""
    host, port = split_endpoint(settings.endpoint)
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host  # these mean another host elsewhere
    options: dict[str, object] = {"--nnodes": num_nodes, "--nproc": nproc, "--endpoint": replace(meeting, host=host, ports=(port,)).name}
    options |= {f"--{name}": value for name in ("quick", "redact", "ifname") if (value := getattr(settings, name))}
    options |= {"--settings": settings.file} if settings.file else {}
    command = ["numscope"] if Path(sys.argv[0]).name == "numscope" else ["python", "-m", "numscope"]
    line = shlex.join([*command, "doctor", *(str(word) for option in options.items() for word in option if word is not True)])
    others = "the other" if num_nodes == 2 else f"each of the {num_nodes - 1} other"
    if meeting.local:
        return [f"numscope: in {others} shell{'s' * (num_nodes > 2)} of this host, run", f"  {line}"]
    return [f"numscope: on {others} node{'s' * (num_nodes > 2)}, paste", f"  {TOKEN}={meeting.token} {line}"]


def num_gpus(environ: Mapping[str, str]) -> int:
    """The number of GPUs on this node, read from files only: asking a driver can hang."""
    visible = environ.get("CUDA_VISIBLE_DEVICES", environ.get("HIP_VISIBLE_DEVICES"))
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip() and word.strip() != "-1"])
    nvidia = len(glob.glob("/proc/driver/nvidia/gpus/*")) or len([p for p in glob.glob("/dev/nvidia[0-9]*") if p[11:].isdecimal()])
    amd = 0
    for path in glob.glob("/sys/class/kfd/kfd/topology/nodes/*/gpu_id"):
        with contextlib.suppress(OSError):
            amd += Path(path).read_text(encoding="ascii").strip() not in ("", "0")
    return nvidia or amd


def _run(node: Identity, settings: Settings, endpoint: str, token: str, deadline: Deadline, output: Output, course: Course | None) -> int:
    """Runs the node's ranks until the verdict has reached them; returns its exit code."""
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    stopped: list[str] = []
    limits = [deadline]  # the last one counts

    def stop(name: str) -> None:
        if course is not None:
            course.hub.hurry = name
        else:
            limits.append(deadline.within(_AFTER_END_S))
        if course is None or stopped:
            _signal(ranks, signal.SIGTERM)
        stopped.append(name)

    with on_signals(stop):
        for rank in _ranks(node):
            command = [sys.executable, "-m", "numscope.doctor.rank", str(os.getpid())]
            environ = _environ(node, rank, settings, endpoint, token)
            ranks[rank] = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=output.lines, start_new_session=True)
        try:
            while not limits[-1].over and (course.running if course is not None else any(p.poll() is None for p in ranks.values())):
                if course is not None:
                    course.departed |= {rank: _how(code) for rank, process in ranks.items() if (code := process.poll()) is not None}
                time.sleep(_POLL_S)
        finally:
            if course is not None:
                course.hub.close()
                end = Deadline(_AFTER_END_S)
                while not end.over and any(process.poll() is None and course.hub.is_here(rank) for rank, process in ranks.items()):
                    time.sleep(_POLL_S)
            _signal(ranks, signal.SIGKILL)
            parting = Deadline(_PARTING_S)
            for process in ranks.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(parting.left, 0.05))
    if course is not None:
        return course.report()
    codes = Counter(code for process in ranks.values() if (code := process.poll()) is not None and code >= 0)
    if codes:
        return codes.most_common(1)[0][0]
    if stopped:
        write_lines([f"numscope: incomplete: ended by {stopped[0]}"], output.lines)
    return INCOMPLETE


def _how(code: int) -> str:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    return f"its process ended with {how} before it joined"


def _signal(ranks: Mapping[int, subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for process in ranks.values():
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)


def _environ(node: Identity, rank: int, settings: Settings, endpoint: str, token: str) -> dict[str, str]:
    numbers = (rank, node.world_size, rank - node.rank, node.local_world_size, node.node, node.num_nodes)
    return {
        **python_environ(),
        **dict(zip(TORCHRUN, map(str, numbers), strict=True)),
        LAUNCHER: node.launcher,
        ENDPOINT: endpoint,
        TOKEN: token,
        SETTINGS: json.dumps(to_json(settings)),
    }


def _end_at_once(name: str) -> None:
    write_lines([f"numscope: incomplete: ended by {name} before it reached the hub"], 1)
    os._exit(INCOMPLETE)
