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
from typing import Any, get_args

from numscope.doctor.records import Confidence, Launcher, Phase, Severity, Status

_TEXT = 64 << 10
_LONG = 1 << 63

_name = re.compile(r"(?!-)[^\x00-\x1f\x7f]{0,255}")
_key = re.compile(r"[0-9a-f]{32}")
_rank = range(1 << 24)
_count = range(1, 1 << 24)
_port = range(1 << 16)
_phase = range(len(Phase))
_maybe = (float, frozenset({None}))
_address = re.compile(r"[0-9A-Za-z.:%_-]{0,100}")

_IDENTITY = {
    "rank": _rank,
    "world_size": _count,
    "local_rank": _rank,
    "local_world_size": _count,
    "node": _rank,
    "num_nodes": _count,
    "hostname": _name,
    "launcher": frozenset(get_args(Launcher)),
}
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
_RESULT = {
    "phase": _phase,
    "rank": _rank,
    "status": frozenset(get_args(Status)),
    "started": float,
    "seconds": float,
    "doing": str,
    "error": str,
    "data": {},
}
_FINDING = {
    "id": str,
    "severity": frozenset(get_args(Severity)),
    "summary": str,
    "ranks": [_rank],
    "hosts": [str],
    "links": [[str]],
    "evidence": [str],
    "confidence": frozenset(get_args(Confidence)),
    "remedy": [str],
}
_RESOLVED = {"name": str, "addresses": [str], "loopback": bool, "error": str, "seconds": float}
_CELL = {
    **dict.fromkeys(("from_node", "to_node", "from_rank", "to_rank"), _rank),
    **dict.fromkeys(("from_host", "to_host", "address", "status", "error", "known?", "ephemeral?"), str),
    **dict.fromkeys(("connect_s?", "rtt_s?", "rtt_min_s?", "payload_s?", "bytes_per_s?", "loss?"), float),
    **dict.fromkeys(("round?", "bytes?", "segments?", "retransmitted?", "mss?", "pmtu?"), int),
    "port": _port,
    "burst_losses?": [[int]],
}
_CHILD = {"hung": bool, "how": str, "doing": str, "doing_s": float, "stderr": [str]}
_GROUP = {"seconds?": float, "error?": str, "skipped?": str, "not_ready?": [_rank], "lacking?": {str: str}}
_RECEIVED = {
    "bytes": int,
    "seconds?": _maybe,
    "bytes_per_s?": _maybe,
    "skipped?": str,
    "corrupt?": (frozenset({None}), {"first_offset": int, "num_bytes": int, "num_bits": int}),
}
_PAIR = {
    "peer": _rank,
    "backend": str,
    "round": int,
    "status": str,
    "doing?": str,
    "error?": str,
    "round_trip_s?": _maybe,
    "received?": [_RECEIVED],
}
_WRONG = {"index": int, "got": (float, str), "expected": (float, str), "num_wrong": int, "num_elements": int}
_COLLECTIVE = {
    **dict.fromkeys(("name", "backend", "group", "status"), str),
    "ranks": [_rank],
    "bytes": int,
    "by?": str,
    "repeats?": int,
    **dict.fromkeys(("seconds_min?", "seconds_max?", "bytes_per_s_min?", "bytes_per_s_max?"), _maybe),
    "wrong?": (frozenset({None}), _WRONG),
    "digests?": [str],
    "error?": str,
    "missing?": [_rank],
}
_TIMES = {"repeats": int, "min_s": float, "median_s": float, "max_s": float}
_TOGETHER = {"members?": [_rank], "missing?": [_rank], "stopped?": str, "child?": _CHILD}

# What a phase measured, as its module describes it; a phase that failed has a part of it.
_DATA: dict[Phase, dict[str, Any]] = {
    Phase.FACTS: {
        **dict.fromkeys(("hostname?", "system?", "kernel?", "machine?", "container?"), str),
        "name?": _RESOLVED,
        "interfaces?": {str: {"addresses": [str], "mtu?": int, "up?": bool, "running?": bool, "loopback?": bool, "speed_mbps?": int}},
        "shm?": {"size_bytes": int, "free_bytes": int},
        "limits?": {"memlock_bytes": int, "nofile": int, "nproc": int},
        "cpus?": {"count": int, "usable": int, "quota?": float},
        "memory?": {"total_bytes": int, "available_bytes?": int, "limit_bytes?": int},
        "versions?": {str: str},
        "environment?": {str: str},
        "left_out?": [str],
        "gpus?": {
            "status": str,
            "error": str,
            "driver?": str,
            "devices": [{"index": int, "name": str, "uuid": str, "memory_bytes": int}],
        },
        "infiniband?": {str: {str: str}},
        "wall_s?": float,
        "pid?": int,
        "errors?": {str: str},
    },
    Phase.RENDEZVOUS: {
        **dict.fromkeys(("endpoint?", "origin?", "address?", "ifname?", "ifname_address?"), str),
        "addresses?": [str],
        "attempts?": {str: int},
        "offset_s?": float,
        "round_trip_s?": float,
    },
    Phase.COMPARE: {
        "offset_s?": float,
        "round_trip_s?": float,
        "interface?": {"name": str, "mtu": int, "address": str, "error?": str},
        "master?": _RESOLVED,
    },
    Phase.LINKS: {
        **dict.fromkeys(("node?", "nodes?", "representative?", "rounds?"), int),
        "heard?": {re.compile(r"\d{1,8}"): int},
        "loopback?": (frozenset({None}), _CELL),
        "cells?": [_CELL],
    },
    Phase.BACKEND: {
        **_TOGETHER,
        "torch?": str,
        "import_s?": float,
        "device?": str,
        "num_gpus?": int,
        "store?": ({"error": frozenset({""})}, {"rank": _rank, "address": str, "port": _port, "connect_s?": _maybe, "error": str}),
        "groups?": {str: _GROUP},
    },
    Phase.PAIRS: {**_TOGETHER, "sizes?": [int], "num_rounds?": int, "rounds_done?": int, "pairs?": [_PAIR]},
    Phase.COLLECTIVES: {
        **_TOGETHER,
        "memory?": {"device": str, "bytes": int, "seconds": float, "error": str},
        "collectives?": [_COLLECTIVE],
    },
    Phase.COMPUTE: {
        "child?": _CHILD,
        "device?": str,
        "threads?": int,
        "load?": float,
        "gemm?": {**_TIMES, "n": int, "flops_per_s": float},
        "copy?": {**_TIMES, "bytes": int, "bytes_per_s": float},
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
