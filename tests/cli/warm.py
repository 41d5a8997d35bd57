"""Starts Python programs from a process that has torch already: ``warm.py serve SOCKET``, then ``warm.py run SOCKET -m module ARGS…``.

A short trial of a script spends nine tenths of its time on imports. What is run is a process of its own all the same, with the caller's
arguments, environment, folder and output.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys


def run(path: str, words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        asked = json.dumps({"words": words, "env": dict(os.environ), "folder": os.getcwd()}).encode()
        socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(asked)
        return int(server.makefile().read() or 1)


def serve(path: str) -> None:
    import torch._dynamo
    import torch._inductor.config  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            child = os.fork()
            if child == 0:
                return _become(client)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with client:
                client.sendall(str(status).encode())


def _become(client: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    asked = json.loads(client.makefile().read(int.from_bytes(size, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    _, module, *words = asked["words"]
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(run(sys.argv[2], sys.argv[3:]))
