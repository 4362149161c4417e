"""`make bench`: the parts that are asked for, one after the other, and what came of them in `bench/out`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

from bench import machine, table
from bench.figures import Figure
from bench.page import FIGURES
from bench.parts import PARTS, Part
from bench.peers import environment
from bench.stage import Plan, Stage, own_databases
from tests.databases import Database


def main() -> None:
    """Play, print and write."""
    arguments = _arguments()
    names = [name.strip().replace("-", " ") for name in arguments.rows.split(",") if name.strip()]
    if unknown := set(names) - {part.name for part in PARTS}:
        sys.exit(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in PARTS)}")
    chosen = [part for part in PARTS if not names or part.name in names]
    with own_databases() as (databases, any_postgres):
        stage = Stage(databases, Plan(rounds=arguments.rounds, sec=arguments.sec))
        asyncio.run(_play(chosen, stage, any_postgres))


def _arguments() -> argparse.Namespace:
    plan = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", default="", help="parts, separated by commas; all if none is named")
    parser.add_argument("--rounds", type=int, default=plan.rounds, help="how often each is run (%(default)s)")
    parser.add_argument("--sec", type=float, default=plan.sec, help="how long a run takes (%(default)s)")
    return parser.parse_args()


async def _play(parts: list[Part], stage: Stage, any_postgres: Database) -> None:
    began = time.perf_counter()
    figures: list[Figure] = []
    about = await machine.described(any_postgres)
    _say(f"{name}: {value}" for name, value in about.items())
    if any(part.with_peers for part in parts):
        stage, about["peers"] = await _with_peers(stage)
        _say([f"peers: {about['peers']}"])
    for part in parts:
        _say(["", part.title])
        part_began = time.perf_counter()
        came = await part.play(stage)
        _say([*table.lines(came), f"  {time.perf_counter() - part_began:.0f} s"])
        figures += came
    about["load average in the end"] = machine.load()
    about["took"] = f"{time.perf_counter() - began:.0f} s"
    shown = FIGURES if len(parts) == len(PARTS) else FIGURES.with_stem("some-figures")  # the page shows all or none
    shown.parent.mkdir(exist_ok=True)
    shown.write_text(table.markdown(figures, about))
    shown.with_suffix(".json").write_text(table.as_json(figures, about))
    _say(["", f"{about['took']}; written to {shown} and, with every run, {shown.with_suffix('.json').name}"])


async def _with_peers(stage: Stage) -> tuple[Stage, str]:
    """The stage with the peers that can be had, and which they are."""
    try:
        await environment.install()
    except RuntimeError as error:
        return replace(stage, peers=()), f"none: {error}"
    return stage, environment.versions(["procrastinate", "pgqueuer", "saq"])


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
