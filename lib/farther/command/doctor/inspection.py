"""What the checks of the stages read of a project, each thing once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farther.errors import choose

if TYPE_CHECKING:
    from farther.curation import Benchmark, Rules
    from farther.datasets import Checked

ARTIFACTS = Path("artifacts")


@dataclass(frozen=True)
class Inspection:
    """A project before it runs.

    The module of a stage in `farther.command.doctor` has a function `check` that yields what the
    stage would refuse, as `farther.errors.Finding`. The checks are called in the order of the
    stages, in the project's folder.

    Args:
        params: All sections of params.yaml.
        quick: Open neither annotations nor images nor checkpoints.
        opens_nothing: Also open no detections, and import no framework of a detector.

    Attributes:
        subsets: What the check of `ingest` found in each (dataset, subset); that of `infer` needs
            it.
    """

    params: dict[str, Any]
    quick: bool = False
    opens_nothing: bool = False
    subsets: dict[tuple[str, str], Checked] = field(default_factory=dict)
    _rules_by_benchmark: dict[str, Rules] = field(default_factory=dict)

    def section(self, name: str) -> dict[str, Any]:
        """A section; {} where it is absent or empty."""
        return self.params.get(name) or {}

    def benchmark(self, name: str) -> Benchmark:
        """A benchmark, checked."""
        from farther.curation import benchmark

        entries = self.section("benchmarks")
        return benchmark(name, entries[choose("benchmark", name, entries)])

    def rules(self, benchmark: str) -> Rules:
        """The rules of a benchmark, checked."""
        from farther.curation import read_rules

        if benchmark not in self._rules_by_benchmark:
            self._rules_by_benchmark[benchmark] = read_rules(self.benchmark(benchmark))
        return self._rules_by_benchmark[benchmark]
