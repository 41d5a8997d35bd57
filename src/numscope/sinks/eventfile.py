"""TensorBoard's event file, written as it comes: no thread, nothing in memory that a killed run would lose."""

from __future__ import annotations

import os
import socket
import time
from typing import Any


class EventFile:
    """What ``SummaryWriter`` offers of what numscope needs, without torch and without its thread.

    Args:
        folder: created if missing; each process has a file of its own in it.

    Raises: OSError.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.numscope-{time.monotonic_ns()}"
        self._records = RecordWriter(open(os.path.join(folder, name), "wb"))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._add(step, tag=tag, simple_value=float(value))

    def add_text(self, tag: str, text: str, step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        content = TensorProto(dtype="DT_STRING", string_val=[text.encode(errors="backslashreplace")], tensor_shape=shape)
        self._add(step, tag=f"{tag}/text_summary", metadata=metadata, tensor=content)

    def add_histogram_raw(
        self, tag: str, *, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Any, bucket_counts: Any,
        global_step: int,
    ) -> None:  # fmt: skip
        from tensorboard.compat.proto.summary_pb2 import HistogramProto

        histogram = HistogramProto(min=min, max=max, num=num, sum=sum, sum_squares=sum_squares)
        histogram.bucket_limit.extend(bucket_limits)
        histogram.bucket.extend(bucket_counts)
        self._add(global_step, tag=tag, histo=histogram)

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self._records.close()

    def _add(self, step: int, **value: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=[Summary.Value(**value)])))

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
