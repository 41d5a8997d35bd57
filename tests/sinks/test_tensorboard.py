"""TensorBoard, read back by its own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import numscope
from numscope.records.finding import Culprit, Finding, Kind, Reason
from numscope.records.site import Phase, Site
from numscope.sinks.tensorboard import finding_markdown
from tests.sinks.seen import ALERT, ALERT_LINE, observation, opened

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import HISTOGRAMS, SCALARS, EventAccumulator


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(tmp_path))


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={SCALARS: 0, HISTOGRAMS: 0})
    events.Reload()
    return events


def test_scalars_are_read_back_under_their_names(tmp_path: Path, writer: Any) -> None:
    sink = opened(loggers=[writer])
    for step in (0, 100, 200):
        sink.write(
            [observation(step, "decoder.1.fc1", max=step + 0.5, mean=None), observation(step, "decoder.1.fc2", "wgrad", num_nan=step)]
        )
        sink.flush()
    sink.close()
    events = read(tmp_path)
    assert set(events.Tags()[SCALARS]) == {"activation.max/decoder.1.fc1", "wgrad.num_nan/decoder.1.fc2"}
    assert [(e.step, e.value) for e in events.Scalars("activation.max/decoder.1.fc1")] == [(0, 0.5), (100, 100.5), (200, 200.5)]
    assert [(e.step, e.value) for e in events.Scalars("wgrad.num_nan/decoder.1.fc2")] == [(0, 0.0), (100, 100.0), (200, 200.0)]


def test_names_of_transformer_engines_debug_tool_by_setting(tmp_path: Path, writer: Any) -> None:
    sink = opened(loggers=[writer, f"tensorboard:{tmp_path / 'ours'}"], names="te")
    sink.write([observation(0, "decoder.1.fc1", max=0.5)])
    sink.close()
    for folder in (tmp_path, tmp_path / "ours"):
        assert read(folder).Tags()[SCALARS] == ["decoder.1.fc1_activation_max"]


def test_configuration_says_how_statistics_are_named(tmp_path: Path) -> None:
    statistics = {"enabled": True, "tensors": ["output"], "stats": ["max"]}
    section = {"enabled": True, "layers": {"layer_types": "all"}, "statistics": statistics}
    for said, tag in (({}, "output.max/0"), ({"names": "te"}, "0_output_max")):
        model, folder = torch.nn.Sequential(torch.nn.Linear(2, 2)), tmp_path / str(len(said))
        with numscope.watch(model, config={"s": section, **said}, loggers=f"tensorboard:{folder}") as scope:
            model(torch.ones(1, 2)).sum().backward()
            scope.step()
        assert read(folder).Tags()[SCALARS] == [tag]


def test_names_in_a_finding_are_no_markup(tmp_path: Path) -> None:
    markdown_to_safe_html = pytest.importorskip("tensorboard.plugin_util").markdown_to_safe_html
    evil = "`<b>*x*</b>[y](http://z)\n\n# head"
    culprit = Culprit(evil, Phase.FORWARD, evil, f"/{evil}.py", 3, evil, Reason.DOMAIN, evil, evil)
    found = Finding(1, 1, Phase.FORWARD, 0, Site(evil, evil, Phase.FORWARD, "output"), Kind.NAN, False, culprit, "", note=evil)
    page = markdown_to_safe_html(finding_markdown(found, f"{evil}\n{evil}"))
    assert page.count("<h") == page.count("<h3>") == 1
    assert not [tag for tag in ("<b>", "<em>", "<a ") if tag in page]


def test_exponent_histogram_has_a_bin_of_width_one_for_each_exponent(tmp_path: Path, writer: Any) -> None:
    counts = [0.0] * 256
    counts[115], counts[117] = 34.0, 50.0  # exponents -12 and -10
    sink = opened(loggers=[writer])
    sink.write([observation(7, exponent_histogram=counts)])
    sink.close()
    (event,) = read(tmp_path).Histograms("activation.exponent_histogram/fc1")
    shown = event.histogram_value
    assert event.step == 7
    assert (shown.min, shown.max, shown.num) == (-12.0, -9.0, 84.0)
    filled = {limit: count for limit, count in zip(shown.bucket_limit, shown.bucket, strict=True) if count}
    assert filled == {-11.0: 34.0, -9.0: 50.0}  # right edges
    assert shown.sum == -12 * 34 - 10 * 50
    assert shown.sum_squares == 144 * 34 + 100 * 50


def test_empty_histogram_is_left_out(tmp_path: Path, writer: Any) -> None:
    sink = opened(loggers=[writer])
    sink.write([observation(0, exponent_histogram=[0.0] * 256, max=1.0)])
    sink.close()
    assert read(tmp_path).Tags()[HISTOGRAMS] == []


def test_writer_without_raw_histograms_still_gets_scalars() -> None:
    class Plain:
        def __init__(self) -> None:
            self.tags: list[str] = []

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            self.tags.append(tag)

    plain = Plain()
    sink = opened(loggers=[plain])
    sink.write([observation(0, exponent_histogram=[1.0] * 256, max=1.0)])
    sink.close()
    assert plain.tags == ["activation.max/fc1"]


def test_writer_stays_open_for_its_owner(tmp_path: Path, writer: Any) -> None:
    sink = opened(loggers=[writer])
    sink.close()
    writer.add_scalar("loss", 1.0, 0)
    writer.close()
    assert read(tmp_path).Tags()[SCALARS] == ["loss"]


def test_alert_is_text_and_none_of_it_is_markdown(tmp_path: Path, writer: Any) -> None:
    sink = opened(loggers=[writer])
    sink.alert(ALERT)
    sink.close()
    (event,) = read(tmp_path).Tensors("numscope/alerts/text_summary")
    assert (event.step, event.tensor_proto.string_val[0].decode()) == (7, f"    {ALERT_LINE}")


def test_run_is_one_text_without_secrets(tmp_path: Path, writer: Any) -> None:
    run = {"command": ["python", "a b.py", "--api-key", "sesame"], "config": "a: <b>\nb: 2\n", "world_size": 3}
    opened(loggers=[writer], run=run).close()
    (event,) = read(tmp_path).Tensors("numscope/run/text_summary")
    lines = event.tensor_proto.string_val[0].decode().split("\n")
    assert lines[0] == "    command: python 'a b.py' --api-key '[hidden]'"
    assert lines[1:5] == ["    config:", "        a: <b>", "        b: 2", "    world_size: 3"]
    assert f"    torch: {torch.__version__}" in lines
    assert all(line.startswith("    ") for line in lines)  # text, not Markdown


def test_writer_without_text_takes_no_alerts(caplog: pytest.LogCaptureFixture) -> None:
    class Writer:
        def add_scalar(self, tag: str, value: float, step: int) -> None: ...

    sink = opened(loggers=[Writer()])
    sink.alert(ALERT)
    assert "is off" not in caplog.text
