"""How a rank that has something to say is heard by the others: by the job's store, and by one listener on each host.

A rank rings: it leaves a note of whom it concerns, and sets a key for each host. There a thread of one process waits for that key, on a
connection of its own, and tells the host's ranks by memory that they share (``board``). So who has nothing to say sends nothing, and
nobody asks. Where the ranks are when they hear is settled by the listeners: all that are concerned meet at the first place that none of
them has passed.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from numscope.distributed.channel import store
from numscope.distributed.host_memory import NOWHERE, HostMemory
from numscope.records.faults import ours, suppress

log = logging.getLogger("numscope")

ANSWER_S = 10.0  # for the other hosts' listeners to say where their ranks are
_RINGER_S = 1.0  # for a rank that has rung to write whom it concerns; for a rank that enters a place to look
_LONG = timedelta(days=24)  # torch waits for at most 2^31 ms
_LOOK_S = 1.0  # between looks whether the listener's process has ended
_LISTENERS, RINGS, NODES = "numscope/listeners", "numscope/rings", "numscope/watches"

_current: Host | None = None


class Host:
    """This process's part in what is heard on its host.

    Attributes:
        board: the memory that the host's ranks share.
        store: of the job.

    *Cost:* a request to the store, and five where this process listens: then also a thread and a connection.
    """

    def __init__(self, world: Any) -> None:
        self._pid = os.getpid()
        self.store: Any = store()
        self.board = HostMemory(bytes(self.store.compare_set("numscope/job", "", secrets.token_hex(8))).decode())
        self.num_watches = 0
        self._listener: _Listener | None = None
        self._next_look = 0.0
        self._lock = threading.Lock()
        self._world = weakref.ref(world)
        self._hosts_store = dist.get_rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        weakref.finalize(world, self._end)
        self.look()
        self.board.wait_for_leader(_RINGER_S)

    @staticmethod
    def here() -> Host:
        """Of the job's present process group."""
        global _current
        world = dist.group.WORLD
        if _current is None or _current._pid != os.getpid() or _current._world() is not world or _current.is_closed:
            _current = Host(world)
        return _current

    @property
    def is_closed(self) -> bool:
        return self._next_look == float("inf")

    def look(self) -> None:
        """Listen, if no process of this host does, or the one that did has ended. *Cost:* a system call, once a second."""
        now = time.monotonic()
        if now < self._next_look:
            return
        with self._lock:  # several threads may train
            if not self.is_closed and self._listener is None and self.board.lead():
                try:
                    self._listener = _Listener(self.board, self.store)
                except ours():  # a store without ``clone``, or one that is gone
                    self.board.end()
            self._next_look = max(self._next_look, now + _LOOK_S)

    def ring(self, nodes: Sequence[int], first: int) -> int:
        """Call the ranks of some watches together. ``first``: the lowest of them. Returns: the ring's number."""
        return self._ring({"nodes": [*nodes], "first": first})

    def _ring(self, note: Any) -> int:
        number = self.store.add(RINGS, 1)
        self.store.set(f"{RINGS}/{number}", json.dumps(note))
        listeners = range(1, self.store.add(_LISTENERS, 0) + 1)
        # The one before as well: who rang it may have died before it was heard, and they are heard in order.
        keys = [f"{_LISTENERS}/{one}/{ring}" for one in listeners for ring in (number - 1, number)]
        self.store.multi_set(keys, ["1"] * len(keys))
        return int(number)

    def release(self) -> None:
        """A watch has ended; with the last one this process listens no longer."""
        self.num_watches -= 1
        if not self.num_watches:
            self.close()

    def close(self) -> None:
        """Listen no longer. Another process of the host takes over at its next step."""
        if not self.is_closed and self._pid == os.getpid():
            self._next_look = float("inf")
            if self._listener is not None:
                self._listener.stop()
            self.board.close()

    def _end(self) -> None:
        """The process group is gone, and the store with it if this process hosts it: listeners elsewhere stop before it does."""
        if self._pid == os.getpid():
            if self._hosts_store and not self.board.is_over:
                with suppress(Exception):
                    self._ring({"ends": True})
            self.close()
            self.store = None


class _Listener:
    """Waits for rings, and tells the ranks of its host."""

    def __init__(self, board: HostMemory, shared: Any) -> None:
        self._board, self._store = board, shared.clone()
        self._number = self._store.add(_LISTENERS, 1)
        self._known = self._store.add(RINGS, 0)  # later ones are for this listener too
        self._awaited = ""
        self._shared = shared
        self._stops = False
        board.hears()
        self._thread = threading.Thread(target=self._listen, name="numscope-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stops = True
        with suppress(Exception):  # the store may be gone, and then the thread is too
            self._shared.set(self._awaited, "stops")
            self._thread.join(_RINGER_S)

    def _listen(self) -> None:
        began = time.monotonic()
        while not self._stops and not self._board.is_over:
            ring = self._board.ring + 1
            self._awaited = f"{_LISTENERS}/{self._number}/{ring}"
            try:
                if ring > self._known:
                    began = time.monotonic()
                    self._store.wait([self._awaited], _LONG)
                if not self._stops:
                    self._tell(ring)
            except ours():
                if time.monotonic() - began < _LONG.total_seconds() / 2:
                    self._board.end()  # with the store, or with its host
        self._store = None

    def _tell(self, ring: int) -> None:
        note = note_of(self._store, f"{RINGS}/{ring}", _RINGER_S) or {}
        nodes = set(note.get("nodes", ()))
        mine = self._board.slots_of(nodes) if nodes else []
        for slot in mine:
            slot.concern(ring)
        self._board.ring = ring
        if "ends" in note:
            self._board.end()
        if not mine:
            return
        time.sleep(0.001)  # by then each rank sees the ring before it passes a place, or has written that it is there
        places = [slot.next_place(_RINGER_S) for slot in mine if slot.is_alive]
        told, at = self._store, f"{RINGS}/{ring}"
        told.set(f"{at}/host/{told.add(f'{at}/hosts', 1)}", json.dumps([max(places, default=0), len(places)]))
        if told.add(f"{at}/heard", len(mine)) == len(nodes):
            hosts = [json.loads(one) for one in told.multi_get([f"{at}/host/{i + 1}" for i in range(told.add(f"{at}/hosts", 0))])]
            verdict = {"place": max(place for place, _ in hosts), "num": sum(num for _, num in hosts), "first": note["first"]}
            told.set(f"{at}/verdict", json.dumps(verdict))
        settled = note_of(told, f"{at}/verdict", ANSWER_S)
        for slot in mine:
            slot.concern(ring, NOWHERE if settled is None else settled["place"])


def note_of(shared: Any, key: str, seconds: float) -> Any:
    """The JSON at a key of the store; None if it has not come in time. *Cost:* at first a request a millisecond, later ten a second."""
    end, pause = time.monotonic() + seconds, 0.001
    while not shared.check([key]):
        if time.monotonic() > end:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return json.loads(shared.get(key))
