"""Projects for a user's photographs, labels and detectors.

Formats are recognised, and the files that the pipeline reads are written.
"""

from farther.projects.class_matching import Lookup
from farther.projects.project import ProjectFiles, add, init
from farther.projects.recognise import Choices, Dataset, recognise
from farther.projects.recognise_detector import RecognisedDetector, recognise_detector

__all__ = [
    "Choices",
    "Dataset",
    "Lookup",
    "ProjectFiles",
    "RecognisedDetector",
    "add",
    "init",
    "recognise",
    "recognise_detector",
]
