"""What the doctor's messages look like. Each message is checked before anything reads it; further keys pass, so that versions may differ.

A shape is one of

    str, bool, int, float    such a value: text of at most 64 KiB, whole numbers of 64 bits, a whole or finite number
    range(1, 9)              a whole number in it
    frozenset({"a", None})   one of these values
    re.compile("…")          a text that matches as a whole
    [shape], {str: shape}    any number of them
    {"a": shape, "b?": shape}    an object with an ``a``, and possibly a ``b``
    (shape, shape)           either
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from numscope.doctor.phases.cell import Cell
from numscope.doctor.records import Count, Finding, Identity, Name, Phase, PhaseResult, Port, Rank

_TEXT = 64 << 10
_LONG = 1 << 63

_key = re.compile(r"[0-9a-f]{32}")
_maybe = (float, frozenset({None}))
_address = re.compile(r"[0-9A-Za-z.:%_-]{0,100}")


def _of(annotation: Any) -> Any:
    """The shape of a type; that of a record is an object with all of its fields."""
    if is_dataclass(annotation):
        return {name: _of(inner) for name, inner in get_type_hints(annotation, include_extras=True).items()}
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return arguments[1]
    if origin is Literal:
        return frozenset(arguments)
    if origin in (Union, UnionType):
        return tuple(map(_of, arguments))
    if origin is tuple:
        return [_of(arguments[0])]
    return range(len(Phase)) if annotation is Phase else {} if origin is not None else annotation


_rank, _count, _port, _name, _phase = map(_of, (Rank, Count, Port, Name, Phase))
_IDENTITY, _RESULT, _FINDING = map(_of, (Identity, PhaseResult, Finding))
_CELL = {f.name if f.default is MISSING else f"{f.name}?": _of(Cell)[f.name] for f in fields(Cell)}  # a part of it may not be measured
_LISTEN = {"address": _address, "port": _port, "store_port": _port}
_MEMBER = {
    "identity": _IDENTITY,
    "address": _address,
    "seen": _address,
    "listen": _LISTEN,
    "offset_s": float,
    "round_trip_s": float,
    "pid": int,
}

# ---- What each phase measures, as far as it got: the ``data`` of a result. Seconds, bytes and ranks are what their names say.

_RESOLVED = {"name": str, "addresses": [str], "loopback": bool, "error": str, "seconds": float}  # loopback: there are some, and all are
_CHILD = {  # only if a rank's torch process died or was killed
    "hung": bool,  # killed by its agent at the deadline
    "how": str,  # it ended
    "doing": str,  # its current step
    "doing_s": float,  # for how long
    "stderr": [str],  # its last lines
}
_GROUP = {
    "seconds?": float,
    "error?": str,  # torch's own text
    "skipped?": str,  # why it was not started
    "not_ready?": [_rank],  # whose group did not start, known only where ours did not start either
    "lacking?": {str: str},  # by rank what prevents NCCL from starting: "gpu" (none of its own), "nccl" (its torch has none)
}
_RECEIVED = {  # from the peer; what it received from this rank is in its own data
    "bytes": int,
    "seconds?": _maybe,  # the smallest of three up to 1 MiB
    "bytes_per_s?": _maybe,
    "skipped?": str,  # why
    "corrupt?": (frozenset({None}), {"first_offset": int, "num_bytes": int, "num_bits": int}),  # numbers of those that differ
}
_PAIR = {
    "peer": _rank,
    "backend": str,  # gloo, nccl
    "round": int,
    "status": str,  # ok, corrupt, timeout, error, skipped
    "doing?": str,  # the step in which it hung or failed, such as "recv from 3, 64 MiB"
    "error?": str,  # torch's own text, or why skipped
    "round_trip_s?": _maybe,  # the smallest of several, 8 bytes each way
    "received?": [_RECEIVED],
}
_WRONG = {"index": int, "got": (float, str), "expected": (float, str), "num_wrong": int, "num_elements": int}  # index: of the first
_COLLECTIVE = {
    "name": str,  # all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, barrier, float_sum
    "backend": str,  # gloo, nccl
    "group": str,  # all, half
    "ranks": [_rank],  # of the group
    "bytes": int,  # of a rank's whole payload, as asked for (at least one float32 per rank is sent)
    "by?": str,  # what replaced it if the backend lacks it, such as "isend and irecv"
    "status": str,  # ok, wrong, unstable, timeout, error, skipped
    "repeats?": int,
    **dict.fromkeys(("seconds_min?", "seconds_max?", "bytes_per_s_min?", "bytes_per_s_max?"), _maybe),
    "wrong?": (frozenset({None}), _WRONG),
    "digests?": [str],  # of the results' bits; of float_sum more than one is unstable, and all ranks of a group must agree
    "error?": str,  # torch's own text, or why skipped
    "missing?": [_rank],  # that did not enter it, if it failed
}
_TIMES = {"repeats": int, "min_s": float, "median_s": float, "max_s": float}
_TOGETHER = {
    "members?": [_rank],  # of the process group, ascending
    "missing?": [_rank],  # that did not join the phase, or did not report at the end of a round: the child hangs, died or is cut off
    "stopped?": str,  # why not all was run
    "child?": _CHILD,
}
_DATA: dict[Phase, dict[str, Any]] = {
    Phase.FACTS: {
        **dict.fromkeys(("hostname?", "system?", "kernel?", "machine?"), str),
        "container?": str,  # its kind; "" if none was recognized
        "name?": _RESOLVED,  # how the host's own name resolves
        "interfaces?": {str: {"addresses": [str], "mtu?": int, "up?": bool, "running?": bool, "loopback?": bool, "speed_mbps?": int}},
        "shm?": {"size_bytes": int, "free_bytes": int},  # of /dev/shm
        "limits?": {"memlock_bytes": int, "nofile": int, "nproc": int},  # -1: unlimited
        "cpus?": {"count": int, "usable": int, "quota?": float},  # usable: affinity; quota: of the cgroup, in CPUs
        "memory?": {"total_bytes": int, "available_bytes?": int, "limit_bytes?": int},  # limit: of the cgroup
        "versions?": {str: str},  # of python, numscope, torch, nccl, …, as installed
        "environment?": {str: str},  # variables that matter for collectives, up to 200 characters each
        "left_out?": [str],  # names of such variables whose names look secret
        "gpus?": {
            "status": str,  # ok, none, failed, timeout
            "error": str,
            "driver?": str,
            "devices": [{"index": int, "name": str, "uuid": str, "memory_bytes": int}],
        },
        "infiniband?": {str: {str: str}},  # by device: port, state, rate, link_layer
        "wall_s?": float,  # this host's clock, seconds since 1970
        "pid?": int,
        "errors?": {str: str},  # by fact why it is absent
    },
    Phase.RENDEZVOUS: {
        **dict.fromkeys(("endpoint?", "origin?", "address?", "ifname?", "ifname_address?"), str),
        "addresses?": [str],
        "attempts?": {str: int},
        "offset_s?": float,
        "round_trip_s?": float,
    },
    Phase.COMPARE: {
        "offset_s?": float,  # this clock minus the hub's
        "round_trip_s?": float,  # of that measurement; the error is at most half of it
        # at which others reach this rank; the name is "" if no interface of this host has that address (it is translated on the way)
        "interface?": {"name": str, "mtu": int, "address": str, "error?": str},
        "master?": _RESOLVED,  # how the name of rank 0's host (MASTER_ADDR if it is set) resolves here
    },
    Phase.LINKS: {
        **dict.fromkeys(("node?", "nodes?", "rounds?"), int),  # this node's number, and how many nodes and rounds there are
        "representative?": int,  # the rank that examines this node's links
        # By rank the datagrams received from it. It sends three before it connects: if they arrive although no connection works, this
        # direction of the link works.
        "heard?": {re.compile(r"\d{1,8}"): int},
        "loopback?": (frozenset({None}), _CELL),  # to this node's representative, from ranks that are not it
        "cells?": [_CELL],  # the outgoing links of this node
    },
    Phase.BACKEND: {
        **_TOGETHER,
        "torch?": str,  # version
        "import_s?": float,  # that importing torch took
        "device?": str,  # cpu, or cuda:<local rank> if NCCL was started; likewise in the phases to come
        "num_gpus?": int,  # visible to this rank's child
        # the rank that hosts it, and torch's own text, "" if it was reached
        "store?": ({"error": frozenset({""})}, {"rank": _rank, "address": str, "port": _port, "connect_s?": _maybe, "error": str}),
        "groups?": {str: _GROUP},  # gloo, nccl
    },
    Phase.PAIRS: {**_TOGETHER, "sizes?": [int], "num_rounds?": int, "rounds_done?": int, "pairs?": [_PAIR]},
    Phase.COLLECTIVES: {
        **_TOGETHER,
        "memory?": {"device": str, "bytes": int, "seconds": float, "error": str},  # error: why it could not be allocated and filled
        "collectives?": [_COLLECTIVE],
    },
    Phase.COMPUTE: {
        "child?": _CHILD,
        "device?": str,
        "threads?": int,  # of torch
        "load?": float,  # the host's load average over the last minute at the start, or -1
        "gemm?": {**_TIMES, "n": int, "flops_per_s": float},  # of square float32 matrices with n rows, by min_s
        "copy?": {**_TIMES, "bytes": int, "bytes_per_s": float},  # by min_s; a read and its write count once
    },
}

# By kind, what a message has besides its kind.
_MESSAGES: dict[str, dict[str, Any]] = {
    # To the hub.
    "join": {"identity": _IDENTITY, "pid": int, "listen": _LISTEN, "offset_s": float, "round_trip_s": float},
    "time": {"t": float},
    "beat": {"key": _key, "t": float, "phase": _phase, "doing": str, "for_s": float},
    "node": {"hostname": _name, "nnodes": _count, "nproc": _count, "node_rank": range(-1, 1 << 24)},
    "result": {"result": _RESULT},
    "leave": {"signal": _name},
    "bye": {},
    # From the hub.
    "clock": {"t": float, "hub": float},
    "welcome": {"key": _key},
    "refused": {"why": str, "reason": str, "key?": _key},
    "place": {"node": _rank},
    "roster": {"roster": {re.compile(r"\d{1,8}"): _MEMBER}},
    "phase": {"phase": _phase, "alive": [_rank], "budget_s": float},
    "verdict": {"verdict": {"exit_code": range(256), "findings": [_FINDING], "ok": [_rank], "seconds": float}},
    "end": {},
    # To and from the port of a rank.
    "rank": {"rank": range(-1, 1 << 24)},
    "echo": {"times": range(1000)},
    "payload": {"bytes": range(1 << 20)},
    "ephemeral": {},
    "bulk": {},
    "received": {},
    "port": {"port": _port},
    "go": {"go": bool},
}
TO_HUB = frozenset({"join", "time", "beat", "node", "result", "leave", "bye"})
TO_RANK = frozenset({"roster", "phase", "verdict", "end"})
TO_LISTENER = frozenset({"echo", "payload", "ephemeral", "bulk"})


def check_message(message: Mapping[str, Any], kinds: frozenset[str]) -> None:
    """Checks that a message is of one of these kinds and has the kind's shape. Raises: ValueError."""
    kind = message.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"kind: got {kind!r:.60}, expected {' or '.join(sorted(kinds))}")
    check(message, _MESSAGES[kind], kind)
    if kind == "result":
        check(message["result"]["data"], _DATA[Phase(message["result"]["phase"])], "data")


def check(value: Any, shape: Any, where: str = "value") -> None:
    """Checks a JSON value. Raises: ValueError that names the place."""
    if isinstance(shape, dict):
        _check_object(value, shape, where)
    elif isinstance(shape, list):
        _expect(isinstance(value, list), value, "a list", where)
        for each in value:
            check(each, shape[0], where)
    elif isinstance(shape, tuple):
        for at, either in enumerate(shape):
            try:
                return check(value, either, where)
            except ValueError:
                if at == len(shape) - 1:
                    raise
    elif isinstance(shape, frozenset):
        _expect(value is None or isinstance(value, str), value, "a known word", where)
        _expect(value in shape, value, "a known word", where)
    elif isinstance(shape, re.Pattern):
        _expect(isinstance(value, str) and shape.fullmatch(value), value, "a short text", where)
    elif isinstance(shape, range):
        _expect(type(value) is int and value in shape, value, f"a whole number from {shape[0]} to {shape[-1]}", where)
    else:
        fits, expected = _SIMPLE[shape]
        _expect(fits(value), value, expected, where)


_SIMPLE: dict[type, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str) and len(value) <= _TEXT, f"text of at most {_TEXT:,} characters"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: type(value) is int and -_LONG <= value < _LONG, "a whole number of 64 bits"),
    float: (lambda value: type(value) in (int, float) and abs(value) < _LONG, "a number below 2^63"),
}


def _check_object(value: Any, shape: Mapping[Any, Any], where: str) -> None:
    _expect(isinstance(value, dict), value, "an object", where)
    for key, inner in shape.items():
        if not isinstance(key, str):  # any names of this shape
            for name, each in value.items():
                check(name, key, where)
                check(each, inner, f"{where}.{name:.60}")
        elif (name := key.removesuffix("?")) in value:
            check(value[name], inner, f"{where}.{name}")
        else:
            _expect(key.endswith("?"), value, f"a {name}", where)


def _expect(fits: object, value: Any, expected: str, where: str) -> None:
    if not fits:
        raise ValueError(f"{where}: got {repr(value)[:60]}, expected {expected}")
