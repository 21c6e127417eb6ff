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
from farther.curation.fates import Fates, explain, reason_of
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
from farther.curation.splits import Curation, RuledSource, curate, fates_by_rules, select_id_classes

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
    "curate",
    "explain",
    "fates_by_rules",
    "joint_decisions",
    "read_rules",
    "reason_of",
    "select_id_classes",
    "subsets_used",
    "time_after",
    "votes",
]
