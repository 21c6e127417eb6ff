"""The ID dataset of the tests."""

from pathlib import Path

import pytest
from tests.projects.files import coco, picture


@pytest.fixture
def pets(tmp_path) -> Path:
    """COCO files as Roboflow writes them: in the folder of the images."""
    root = tmp_path / "pets"
    for subset in ("train", "valid"):
        picture(root / subset / "a.jpg")
        coco(root / subset / "_annotations.coco.json", "a.jpg")
    return root
