"""The images and regions that `farther doctor --estimate` measures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from farther.command.project import Project
from farther.datasets import image_roots
from farther.datasets.presence import EXTRACTED
from farther.tables import Regions
from farther.tables.endings import is_image
from farther.tables.folders import files_below

#: Maximum number of image files of a dataset that are listed for each one in the sample.
LISTED = 50

#: Regions that methods are timed on; the sample's are repeated, slightly changed, where it has
#: fewer.
REGIONS = 2000

#: Columns of vectors whose values a method does not take as features.
NOT_FEATURES = ("box", "box_variance", "mean_probabilities")


def sample_images(root: Path, count: int) -> list[Path]:
    """Some image files of a folder, spread over those that are listed first.

    Args:
        root: The root of a dataset.
        count: Maximum number of files.
    """
    files = sorted(islice(_image_files(root), count * LISTED))
    step = max(1, len(files) // count)
    return files[::step][:count]


def _image_files(root: Path) -> Iterator[Path]:
    """Image files of a dataset.

    Those that `ingest` extracted are left out unless they are the root: it is the folder of
    extracted images for a dataset whose files hold its images.
    """
    for file in files_below(root):
        is_extracted = EXTRACTED in file.relative_to(root).parts
        if is_image(file) and not is_extracted:
            yield file


def sample_benchmark(project: Project, benchmark: str, count: int) -> list[Path]:
    """Image files of the benchmark's datasets, in equal shares.

    Args:
        project: The project.
        benchmark: The benchmark.
        count: Number of images that the shares are of.
    """
    checked = project.benchmark(benchmark)
    datasets = {}
    for name, _ in checked.id_sources.values():
        datasets[name] = project.section("datasets")[name]
    for split in checked.splits.values():
        datasets[split.dataset] = project.section("datasets")[split.dataset]
    roots = image_roots(datasets, project.artifacts / "tables", project.folder)
    share = math.ceil(count / len(roots))
    files = []
    for root in roots.values():
        files += sample_images(root, share)
    return files


def repeat_regions(regions: Regions) -> Regions:
    """`REGIONS` regions: the sample's, repeated with a little noise in their features."""
    repeated = regions[np.arange(REGIONS) % len(regions)]
    changed: dict[str, Any] = {"region_id": np.arange(REGIONS)}
    if regions.header.whole_images:  # one region per image
        changed["image_id"] = np.array([f"{number}" for number in range(REGIONS)], dtype=object)
    random = np.random.default_rng(0)
    for name in repeated.frame.columns:
        values = repeated.array(name)
        if values is None or values.ndim != 2 or name in NOT_FEATURES:
            continue
        noise = random.standard_normal(values.shape) * (0.01 * float(np.std(values)) + 1e-6)
        changed[name] = (values + noise).astype(values.dtype)
    return repeated.with_columns(**changed)
