"""Groups of metrics of a method on an OOD split, one file per group.

A group defines the splits that have its metrics, their computation, and the report's table of them.
Evaluation, report and commands go through `GROUPS`; `farther/metrics/catalogue/metrics.yaml`
describes each metric.
"""

from __future__ import annotations

from farther.evaluation.groups.base import MetricGroup
from farther.evaluation.groups.full_spectrum import FullSpectrum
from farther.evaluation.groups.images import ImagesAsKnown
from farther.evaluation.groups.known import Known
from farther.evaluation.groups.ood import DetectionSeparation
from farther.evaluation.groups.ood_per_image import ImageSeparation
from farther.evaluation.groups.open_set import OpenSet
from farther.evaluation.groups.open_world import OpenWorld
from farther.evaluation.groups.pairs import ImagePairChanges
from farther.evaluation.groups.recognition import Recognition
from farther.evaluation.groups.sides import CorrectId, OnNothing, OnUnknown
from farther.evaluation.groups.user_defined import UserDefined

_IN_ORDER = (
    OpenSet(),
    DetectionSeparation(),
    ImageSeparation(),
    ImagesAsKnown(),
    FullSpectrum(),
    OnUnknown(),
    OnNothing(),
    CorrectId(),
    OpenWorld(),
    Known(),
    ImagePairChanges(),
    Recognition(),
    UserDefined(),
)

#: All groups by name, in the order of their tables in the report.
GROUPS: dict[str, MetricGroup] = {group.name: group for group in _IN_ORDER}
