"""One thread for torch, unless a test asks for more or the environment says otherwise.

The models here are tiny, and two threads that wait for each other on a busy machine are ten times slower than one. Set before torch is
imported, so that the processes which tests start have it too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are built from configs; nothing may be fetched
