"""A project for a user's photographs, labels and detector: recognises formats and writes what the pipeline reads."""

from farther.projects.project import ProjectFiles, add, init
from farther.projects.proposals import Lookup
from farther.projects.recognise import Dataset, recognise
from farther.projects.recognise_detector import RecognisedDetector, recognise_detector

__all__ = [
    "Dataset",
    "Lookup",
    "ProjectFiles",
    "RecognisedDetector",
    "add",
    "init",
    "recognise",
    "recognise_detector",
]
