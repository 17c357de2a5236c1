"""The view of `penstock run`: a live line on a terminal, else a line every ten seconds, and a summary at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.spinner import Spinner
from rich.text import Text

from penstock.base.log_lines import writes_json
from penstock.base.terminal.human_numbers import clock, counted, duration
from penstock.base.terminal.live import LiveView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.engines.figures import RunFigures
    from penstock.engines.kafka_streams import KafkaStreams

__all__ = ["shown_while_running"]

_EVERY_S = 10.0
_DRAWN_EVERY_S = 0.25


@contextmanager
def shown_while_running(app: KafkaStreams, console: Console) -> Iterator[None]:
    """Show the figures of an application, and each change of its state, while the block runs."""
    if writes_json():  # `KafkaStreams.run` logs the same
        yield
        return
    ended = threading.Event()
    spinner = Spinner("dots")

    def screen(figures: RunFigures) -> RenderableType:
        spinner.update(text=_screen(figures))
        return spinner

    with LiveView(console, screen, _stamped(lambda figures: figures.line()), every_s=_EVERY_S) as view:
        name = app.config["application.id"]
        app.set_state_listener(lambda new, old: view.note(f"{clock()}  {name}: {old.value} -> {new.value}"))

        def draw() -> None:
            while not ended.wait(_DRAWN_EVERY_S):
                view.show(app.figures())

        drawing = threading.Thread(target=draw, name="penstock-view", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            ended.set()
            drawing.join()
    console.print(_stamped(lambda figures: figures.summary())(app.figures()), markup=False)


def _stamped(said: Callable[[RunFigures], str]) -> Callable[[RunFigures], str]:
    return lambda figures: f"{clock()}  {said(figures)}"


def _screen(figures: RunFigures) -> Text:
    if figures.doing:
        return Text.assemble(
            (f"{figures.application}  ", "bold"), f"{figures.state} {duration(figures.seconds)}  {figures.doing} ..."
        )
    lag = "-" if figures.lag is None else f"{figures.lag:,}"
    took = f"{figures.seconds_a_batch:.2f} s a batch  " if figures.has_batches else ""
    return Text.assemble(
        (f"{figures.application}  ", "bold"),
        f"{figures.state} {duration(figures.seconds)}  ",
        (f"{figures.rate:,.0f} records/s  ", "bold green"),
        f"lag {lag}  {took}state {counted(figures.state_rows, 'row')}  ",
        f"{figures.records_in:,} in  {figures.records_out:,} out",
        f"  batch {figures.batches:,}" if figures.has_batches else "",
        (f"  {figures.dropped:,} dropped", "yellow") if figures.dropped else "",
        (f"  {figures.never_found:,} fields never found", "yellow") if figures.never_found else "",
    )
