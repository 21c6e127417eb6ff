"""A project for a user's photographs, labels and detector: recognises formats and writes what the pipeline reads."""

from farther.projects.project import ProjectDataset, init
from farther.projects.recognise import Dataset, recognise
from farther.projects.recognise_detector import RecognisedDetector, recognise_detector

__all__ = ["Dataset", "ProjectDataset", "RecognisedDetector", "init", "recognise", "recognise_detector"]
