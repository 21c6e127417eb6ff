"""Which images make up a benchmark's splits, and why: ID classes and what overlaps with them are kept out."""

from farther.curation.fates import Fates, explain
from farther.curation.parameters import Benchmark, Split, benchmark
from farther.curation.rules import PRECEDENCE, Rule, Rules
from farther.curation.sources import Categories, Source, Tables, TablesFolder
from farther.curation.splits import Curation, curate

__all__ = [
    "PRECEDENCE",
    "Benchmark",
    "Categories",
    "Curation",
    "Fates",
    "Rule",
    "Rules",
    "Source",
    "Split",
    "Tables",
    "TablesFolder",
    "benchmark",
    "curate",
    "explain",
]
