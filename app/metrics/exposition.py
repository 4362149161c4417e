"""How the metrics are written down: in Prometheus' text, or as OpenMetrics where the reader asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class Families(Collector):
    """What the library's encoders take for a registry."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterator[Metric]:
        """All metrics, without the samples that say when each series began: they would double what is sent, and
        nobody reads them."""
        for metric in self.metrics:
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def write(metrics: Iterable[Metric], accept: str) -> tuple[str, bytes]:
    """The media type and the text that a reader gets who sent this `Accept` header."""
    try:
        encode, media_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        encode, media_type = choose_encoder("")
    return media_type, encode(Families(metrics))
