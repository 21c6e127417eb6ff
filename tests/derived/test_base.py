"""Parameters and failures of all kinds of derived datasets."""

import pytest

from farther.derived import derived
from farther.errors import DataError, ParameterError

PASTE = {"rules": "r.yaml", "vocabulary": "photos", "cutouts": {}}


@pytest.mark.parametrize("kind", ["corrupt", "blank"])
def test_unreadable_images_of_any_kind_are_listed_and_many_are_an_error(
    scenes, write, tmp_path, kind
):
    all_scenes = scenes(tmp_path, 5)
    (tmp_path / "scene 3.png").write_bytes(b"nothing")
    counts, _ = write(kind, all_scenes, tmp_path / "out", max_failures=0.5)
    assert counts["failures"] == (3 if kind == "corrupt" else 1)
    with pytest.raises(DataError, match=r"cannot be read, more than max_failures = 0\.01 allows"):
        write(kind, all_scenes, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("corrupt", {"severities": [1, 6]}, "each is one of 1, 2, 3, 4, 5"),
        ("corrupt", {"severities": [1, 1]}, "listed once"),
        ("corrupt", {"corruptions": ["fogg"]}, "Did you mean 'fog'"),
        (
            "corrupt",
            {"corruptions": "imagenet"},
            "expected saod, imagenet-c or a list of corruptions",
        ),
        ("corrupt", {"draw_per": "split"}, "draw_per"),
        ("blank", {"file_type": "gif"}, "file_type"),
        ("paste", {**PASTE, "pasting": {"objects": (3, 1)}}, "objects"),
        ("paste", {**PASTE, "pasting": {"size": (0.5, 0.1)}}, "size"),
        ("paste", {**PASTE, "pasting": {"hidden": 2}}, "hidden"),
        ("paste", {**PASTE, "pasting": {"shadow": 1}}, "shadow"),
        ("blank", {"images": {"dataset": "id"}}, "'subset'"),
        ("blurr", {}, "unknown kind of derived dataset 'blurr'"),
    ],
)
def test_wrong_parameters_of_derived_datasets_are_refused(kind, wrong, message):
    with pytest.raises(ParameterError, match=message):
        derived(kind, "d", {"images": {"dataset": "id", "subset": "test"}, **wrong})
