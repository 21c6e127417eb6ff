"""Which images make up a benchmark's splits, and why: ID classes and what overlaps with them are kept out."""

from farther.curation.decisions import UNDO, VERDICTS, Decision, Decisions, DecisionsFile, ImageKey, time_after
from farther.curation.fates import Fates, explain, why
from farther.curation.overruling import JointDecision, joint_decision, outcome
from farther.curation.parameters import Benchmark, Split, benchmark, subsets_used
from farther.curation.rules import PRECEDENCE, Rule, Rules
from farther.curation.sources import Categories, Source, Tables, TablesFolder
from farther.curation.splits import Curation, RuledSource, by_rules, curate

__all__ = [
    "PRECEDENCE",
    "UNDO",
    "VERDICTS",
    "Benchmark",
    "Categories",
    "Curation",
    "Decision",
    "Decisions",
    "DecisionsFile",
    "Fates",
    "ImageKey",
    "JointDecision",
    "Rule",
    "RuledSource",
    "Rules",
    "Source",
    "Split",
    "Tables",
    "TablesFolder",
    "benchmark",
    "by_rules",
    "curate",
    "explain",
    "joint_decision",
    "outcome",
    "subsets_used",
    "time_after",
    "why",
]
