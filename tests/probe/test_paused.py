"""Pausing of listeners while a replay runs."""

from numscope.probe import optimizer


def test_a_pause_whose_exit_was_interrupted_ends_with_its_frame() -> None:
    with optimizer.paused():
        inner = optimizer.paused(untrained=True)
        inner.__enter__()
    assert optimizer.is_paused()
    del inner  # as an interrupt's traceback does, after the outer one has ended
    assert not optimizer.is_paused() and not optimizer._paused
