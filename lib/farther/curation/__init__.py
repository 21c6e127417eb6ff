"""Selection of the images of a benchmark's splits: ID classes and categories that overlap with them are left out."""

from farther.curation.decisions import (
    CHOICES,
    UNDO,
    Decision,
    Decisions,
    DecisionsFile,
    ImageKey,
    time_after,
)
from farther.curation.division import Division
from farther.curation.fates import Fates, explain, why
from farther.curation.overruling import joint_decisions, votes
from farther.curation.parameters import (
    Benchmark,
    IdSplit,
    OodSplit,
    benchmark,
    benchmark_kind,
    subsets_used,
)
from farther.curation.rules import PRECEDENCE, Rule, Rules, read_rules
from farther.curation.sources import Categories, LabelledImages, TablesFolder
from farther.curation.splits import Curation, RuledSource, by_rules, curate, of_id_classes

__all__ = [
    "CHOICES",
    "PRECEDENCE",
    "UNDO",
    "Benchmark",
    "Categories",
    "Curation",
    "Decision",
    "Decisions",
    "DecisionsFile",
    "Division",
    "Fates",
    "IdSplit",
    "ImageKey",
    "LabelledImages",
    "OodSplit",
    "Rule",
    "RuledSource",
    "Rules",
    "TablesFolder",
    "benchmark",
    "benchmark_kind",
    "by_rules",
    "curate",
    "explain",
    "joint_decisions",
    "of_id_classes",
    "read_rules",
    "subsets_used",
    "time_after",
    "votes",
    "why",
]
