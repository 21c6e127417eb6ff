"""What a run needs and whether it is there: packages, datasets, checkpoints, the machine."""

from farther.command.needs.checkpoints import checkpoints
from farther.command.needs.data import data
from farther.command.needs.finding import Finding
from farther.command.needs.machine import disk, gpu, repository
from farther.command.needs.packages import packages
from farther.command.needs.parameters import parameters

__all__ = ["Finding", "checkpoints", "data", "disk", "gpu", "packages", "parameters", "repository"]
