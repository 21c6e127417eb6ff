"""Deployment of a detector with its OOD score: the bundle of a run, and the monitor that runs it.

Example:
    >>> import farther.monitor
    >>> [name for name in farther.monitor.__all__ if name.startswith("M")]
    ['Monitor', 'Monitored']
"""

from farther.monitor.bundle import Bundle
from farther.monitor.bundle_proposals import ProposalChoice
from farther.monitor.bundle_source import BundleSource, Chosen, write_bundle
from farther.monitor.monitor import Monitor
from farther.monitor.monitored import Monitored

__all__ = [
    "Bundle",
    "BundleSource",
    "Chosen",
    "Monitor",
    "Monitored",
    "ProposalChoice",
    "write_bundle",
]
