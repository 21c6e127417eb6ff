"""Trainers: one file for each kind of detector that farther can train, registered under the name that users write.

A trainer is a dataclass of a job's parameters: what is trained, on what, and how. `farther.training.trainers.base` says
what it must have; `farther.training.job` runs it.

Example:
    >>> import farther.training.trainers
    >>> farther.training.trainers.names()
    ['detr', 'faster_rcnn', 'yolo']
"""

from farther.training.trainers.base import Job, register, registry

create = registry.create
get = registry.get
names = registry.names

__all__ = ["Job", "create", "get", "names", "register", "registry"]
