"""What a service shows to Prometheus, read by the library's own parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from app.metrics.meter import Meter


@dataclass(frozen=True)
class Scraped:
    """One look at all metrics. `text` is what came over the wire."""

    text: str
    samples: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one sample of `fairlane_<name>`; `KeyError` if there is none. `from_` is the label `from`."""
        key = {label.rstrip("_"): value for label, value in labels.items()}
        return self.samples[f"fairlane_{name}"][tuple(sorted(key.items()))]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels."""
        wanted = {(label.rstrip("_"), value) for label, value in labels.items()}
        found = self.samples.get(f"fairlane_{name}", {})
        return sum(value for each, value in found.items() if wanted <= set(each))

    def values(self, label: str) -> set[str]:
        """All that a label is anywhere."""
        return {value for found in self.samples.values() for each in found for name, value in each if name == label}


def read(text: str) -> Scraped:
    """The samples in Prometheus' text."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return Scraped(text, samples)


async def scrape(meter: Meter) -> Scraped:
    """What the service shows now."""
    _, text = await meter.scrape("")
    return read(text.decode())
