"""The last hour as pictures. Pygal draws; what it draws is left without colours, scripts and styles of its own, so
that the style sheet decides how it looks by day and by night."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from xml.etree.ElementTree import Element

import pygal
from markupsafe import Markup

from app.api.page.words import duration, number, time_of_day
from app.flow.watch.last_hour import Minute

_WIDTH, _HEIGHT = 480, 170
_LABEL_EVERY_MIN: Final = 15
_WHOLE_STEPS: Final = 5  # a scale up to less would have steps between whole numbers
_DROPPED_CLASSES: Final = ("text-overlay", "tooltip-overlay", "titles")

Series = Sequence[tuple[str, Sequence[float | None]]]


def throughput(minutes: Sequence[Minute], since: datetime) -> Markup:
    """Jobs a minute: what came, what was done, what failed. Nothing is known from before `since`."""
    counted = ("submitted", "completed", "failed")
    minutes = _over(minutes, since)
    known = [minute.at + timedelta(minutes=1) > since for minute in minutes]
    series = [
        (name, [getattr(minute, name) if is_known else None for minute, is_known in zip(minutes, known, strict=True)])
        for name in counted
    ]
    return _lines("throughput", minutes, series, lambda value: number(round(value)), least=_WHOLE_STEPS)


def waiting(minutes: Sequence[Minute], since: datetime) -> Markup:
    """How long jobs had waited that were given to a worker in each minute; a gap where none was."""
    minutes = _over(minutes, since)
    series = [(f"{percent}%", [minute.waits.percentile(percent) for minute in minutes]) for percent in (50, 95)]
    return _lines("waiting", minutes, series, duration, least=1)


def _over(minutes: Sequence[Minute], since: datetime) -> Sequence[Minute]:
    """Without the present minute, which would always seem to fall; unless it is the only one known."""
    return minutes[:-1] if minutes[-1].at > since else minutes


def _lines(
    name: str, minutes: Sequence[Minute], series: Series, read: Callable[[float], str], *, least: float
) -> Markup:
    """`least` is what the scale goes up to however little there is."""
    chart = pygal.Line(
        width=_WIDTH,
        height=_HEIGHT,
        css=[],
        js=[],
        margin=0,
        margin_top=6,
        margin_right=18,
        max_scale=5,
        min_scale=2,
        no_prefix=True,
        disable_xml_declaration=True,
        classes=["chart", name],
        show_dots=any(_has_lone_value(values) for _, values in series),
        dots_size=2,
        show_legend=False,
        show_minor_x_labels=False,
        truncate_label=-1,
        allow_interruptions=True,
        include_x_axis=True,
        value_formatter=read,
        range=(0, max(least, *(value or 0 for _, values in series for value in values))),
    )
    chart.x_labels = [time_of_day(minute.at) for minute in minutes]
    chart.x_labels_major = [time_of_day(minute.at) for minute in minutes if minute.at.minute % _LABEL_EVERY_MIN == 0]
    for name, values in series:
        chart.add(name, list(values))
    chart.add_xml_filter(_bare)
    return Markup(chart.render(is_unicode=True))  # noqa: S704 - numbers and times of our own, no text of anybody else's


def _has_lone_value(values: Sequence[float | None]) -> bool:
    """Whether some value stands between two gaps, where no line would show it."""
    around = zip([None, *values], values, [*values[1:], None], strict=False)
    return any(value is not None and before is None and after is None for before, value, after in around)


def _bare(root: Any) -> Any:
    """Without what a strict policy would not run and what no pointer asks for."""
    root.set("aria-hidden", "true")  # the same figures stand beside it as a table
    root.attrib.pop("id", None)
    for parent in list(root.iter()):
        for child in list(parent):
            if _is_superfluous(child):
                parent.remove(child)
    return root


def _is_superfluous(element: Element) -> bool:
    if not isinstance(element.tag, str):  # a comment
        return True
    return element.tag in ("defs", "title", "desc") or any(
        name in element.get("class", "") for name in _DROPPED_CLASSES
    )
