"""Figures as tables: on a terminal while they come, as Markdown and as JSON in the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from bench.figures import P50, RATE, RATIO, Figure
from bench.parts import PARTS

_SIDE_BY_SIDE: Final = {"submit": RATE, "batch": RATE, "drain": RATE, "pickup": P50}


def number(value: float) -> str:
    """With as many digits as say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def shown(figure: Figure) -> str:
    """The median and the spread."""
    low, high = figure.spread
    return f"{number(figure.median)} ({number(low)} to {number(high)})"


def lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line for each who was measured, for a terminal."""
    for row, of_row in groupby(figures, lambda figure: figure.row):
        yield f"  {row}"
        for who, of_one in groupby(of_row, lambda figure: figure.who):
            yield f"    {who:60} {', '.join(f'{figure.measure} {shown(figure)}' for figure in of_one)}"


def markdown(figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """All there is to show, a table a row of the benchmarks."""
    titles = {part.name: part.title for part in PARTS}
    blocks = ["\n".join(f"- {name}: {value}" for name, value in machine.items())]
    blocks.append(side_by_side(figures))
    for part, of_part in groupby(figures, lambda figure: figure.part):
        blocks.append(f"### {titles[part]}")
        for row, of_row in groupby(of_part, lambda figure: figure.row):
            blocks += _tables(row, list(of_row))
    return "\n\n".join(blocks) + "\n"


def side_by_side(figures: Sequence[Figure]) -> str:
    """The medians of all who do a job, a line each; empty where nothing of it was measured."""
    columns = [
        (row, measure)
        for part, measure in _SIDE_BY_SIDE.items()
        for row in dict.fromkeys(figure.row for figure in figures if figure.part == part)
    ]
    cells = {(figure.who, figure.row, figure.measure): number(figure.median) for figure in figures}
    whos = dict.fromkeys(f.who for f in figures if (f.row, f.measure) in columns)
    head = ["", *(f"{row}, {measure}" for row, measure in columns)]
    return _table(head, [[who, *(cells.get((who, *column), "") for column in columns)] for who in whos])


def as_json(figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """The same for programs, with every run."""
    rows = [
        {
            "part": figure.part,
            "row": figure.row,
            "who": figure.who,
            "measure": figure.measure,
            "median": figure.median,
            "samples": figure.samples,
        }
        for figure in figures
    ]
    return json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n"


def _tables(row: str, figures: Sequence[Figure]) -> Iterator[str]:
    """What was measured, a line a contender, and what was compared."""
    measured = [figure for figure in figures if figure.measure != RATIO]
    if measured:
        measures = list(dict.fromkeys(figure.measure for figure in measured))
        cells = {(figure.who, figure.measure): shown(figure) for figure in measured}
        whos = dict.fromkeys(figure.who for figure in measured)
        yield _table([row, *measures], [[who, *(cells.get((who, each), "") for each in measures)] for who in whos])
    ratios = [figure for figure in figures if figure.measure == RATIO]
    if ratios:
        yield _table([row, RATIO], [[figure.who, shown(figure)] for figure in ratios])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(_line(cells) for cells in (head, ["---"] * len(head), *rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
