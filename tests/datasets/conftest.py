"""Datasets in miniature, written as the test says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image


@pytest.fixture
def lay(tmp_path: Path) -> Callable[..., Path]:
    """Writes files below a root: text and bytes as they are, (width, height) as an image, anything else as JSON."""

    def write(files: dict[str, Any]) -> Path:
        root = tmp_path / "root"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, tuple):
                Image.new("RGB", content, (200, 30, 60)).save(path)
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(
                    content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
                )
        return root

    return write
