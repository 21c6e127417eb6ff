"""Selection of the images of a benchmark's splits.

Images that show an ID class, or a category that overlaps with one, are left out of the OOD splits.
"""

from farther.curation.decisions import (
    CHOICES,
    UNDO,
    Decision,
    DecisionsFile,
    ImageKey,
    ReviewDecisions,
    time_after,
)
from farther.curation.division import Division
from farther.curation.fates import Fates, explain, why
from farther.curation.parameters import (
    Benchmark,
    IdSplit,
    OodSplit,
    benchmark,
    benchmark_kind,
    subsets_used,
)
from farther.curation.review_votes import joint_decisions, votes
from farther.curation.rules import PRECEDENCE, CategoryRule, Rules, read_rules
from farther.curation.sources import Categories, LabelledImages, TablesFolder
from farther.curation.splits import Curation, RuledSource, by_rules, curate, of_id_classes

__all__ = [
    "CHOICES",
    "PRECEDENCE",
    "UNDO",
    "Benchmark",
    "Categories",
    "CategoryRule",
    "Curation",
    "Decision",
    "DecisionsFile",
    "Division",
    "Fates",
    "IdSplit",
    "ImageKey",
    "LabelledImages",
    "OodSplit",
    "ReviewDecisions",
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
