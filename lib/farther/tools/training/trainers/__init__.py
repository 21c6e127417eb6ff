"""Trainers: one file for each kind of detector that farther can train, registered under the name that users write.

A trainer is a dataclass of a job's parameters: what is trained, on what, and how. `trainers.base` says
what it must have; `farther.tools.training.job` runs it.

Example:
    >>> import farther.tools.training.trainers
    >>> farther.tools.training.trainers.names()
    ['detr', 'faster_rcnn', 'yolo']
"""

from farther.tools.training.trainers.base import Job, register, registry

create = registry.create
get = registry.get
names = registry.names

__all__ = ["Job", "create", "get", "names", "register", "registry"]
