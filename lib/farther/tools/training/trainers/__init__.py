"""Trainers: one file per kind of detector that farther can train, registered under the name that users write.

A trainer is a dataclass of a job's parameters. `trainers.base` defines its interface; `farther.tools.training.job` runs
it.

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
