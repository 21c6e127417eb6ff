"""Scores of other programs as a method: each row belongs to one image, each region has a score."""

import json
import re

import numpy as np
import polars as pl
import pytest
from tests.support.fitting import fit_and_score

from farther.errors import DataError, ParameterError
from farther.methods import load
from farther.scoring.inputs import FitSettings, RunRegions
from farther.tables import Images, Regions, Scores

#: Images of each split; "0001" is an image of both datasets.
IMAGES = {
    "train": ("id", ["t1", "t2"]),
    "val": ("id", ["v1", "v2"]),
    "test": ("id", ["0001", "0002"]),
    "near": ("ood", ["0001", "0007"]),
}


def images_of(dataset: str, names: list[str]) -> Images:
    count = len(names)
    return Images(
        image_id=names,
        dataset=[dataset] * count,
        file=[f"{dataset}/{name}.jpg" for name in names],
        width=np.full(count, 100),
        height=np.full(count, 100),
        digest=[f"{dataset}{name}" for name in names],
    )


def regions_of(names: list[str], boxes: list[list[float]] | None = None) -> Regions:
    count = len(names)
    return Regions(
        image_id=names,
        region_id=np.arange(count),
        box=boxes or [[0, 0, 100, 100]] * count,
        score=np.full(count, 0.5),
        label=np.zeros(count, np.int64),
        logits=np.zeros((count, 2), np.float32),
        classes=("cat", "dog"),
        whole_images=boxes is None,
    )


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of a classifier, and the folder of its splits."""
    for split, (dataset, names) in IMAGES.items():
        images_of(dataset, names).write(tmp_path / f"splits/b/{split}/images.parquet")
        regions_of(names).write(tmp_path / "regions" / split)
    monkeypatch.chdir(tmp_path)
    splits = tmp_path / "splits/b"
    return RunRegions(
        tmp_path / "regions", settings=FitSettings(), test_splits=("near",), splits=splits
    )


WHOLE = """image,score
id/v1.jpg,0.9
id/v2.jpg,0.8
id/0001.jpg,0.7
id/0002.jpg,0.6
ood/0001.jpg,0.2
ood/0007.jpg,0.1
"""


def scored(run, tmp_path, content=WHOLE, file="theirs.csv", **params):
    (tmp_path / file).write_text(content)
    done = fit_and_score({"theirs": {"method": "imported", "file": file, **params}}, run, tmp_path)
    scores = {}
    for split in ("val", "test", "near"):
        table = tmp_path / f"scores/theirs/{split}.parquet"
        if table.exists():
            scores[split] = Scores.read(table).score.tolist()
    return done, scores


def test_the_same_name_in_two_datasets_has_the_score_of_its_own_folder(run, tmp_path):
    _, scores = scored(run, tmp_path)
    assert scores == {"val": [0.9, 0.8], "test": [0.7, 0.6], "near": [0.2, 0.1]}


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_with_decimal_commas_and_tabs_are_read(run, tmp_path, separator):
    content = WHOLE.replace(",", separator)
    if separator == ";":
        content = content.replace(".", ",").replace(",jpg", ".jpg")
    _, scores = scored(run, tmp_path, content)
    assert scores == {"val": [0.9, 0.8], "test": [0.7, 0.6], "near": [0.2, 0.1]}


def test_uncertainties_are_turned_round(run, tmp_path):
    _, scores = scored(run, tmp_path, higher="ood")
    assert scores["near"] == [-0.2, -0.1]


@pytest.mark.parametrize(
    ("near", "params", "remark"),
    [
        ((0.2, 0.1), {}, None),
        # Of the four pairs of one image of `val` (0.9, 0.8) and one of `near`, one is in order.
        (
            (0.95, 0.85),
            {},
            "AUROC of split 'val' against near is 0.250, below 0.5: .* OOD\\? "
            "Then write `higher: ood`",
        ),
        ((0.95, 0.85), {"higher": "ood"}, None),
        ((0.2, 0.1), {"higher": "ood"}, "is 0.000, below 0.5: .* ID\\? Then write `higher: id`"),
        ((0.9, 0.8), {}, None),  # an AUROC of 0.5
    ],
)
def test_scores_that_seem_to_have_the_other_sign_are_remarked_on(
    run, tmp_path, near, params, remark
):
    content = WHOLE.replace("ood/0001.jpg,0.2", f"ood/0001.jpg,{near[0]}")
    content = content.replace("ood/0007.jpg,0.1", f"ood/0007.jpg,{near[1]}")
    done, scores = scored(run, tmp_path, content, **params)
    if remark is None:
        assert done.fit.remarks == {}
    else:
        (text,) = done.fit.remarks["theirs"]
        assert re.search(remark, text)
    # Nothing is turned round.
    assert np.abs(scores["near"]).tolist() == list(near)


def test_a_name_that_may_be_of_two_images_is_refused_and_the_column_split_tells_them_apart(
    run, tmp_path
):
    ambiguous = "image,score\nv1,0.9\nv2,0.8\n0001,0.7\n0002,0.6\n0001,0.2\n0007,0.1\n"
    with pytest.raises(
        DataError, match=r"'0001' may be 'ood/0001.jpg'.* or 'id/0001.jpg'.*column `split`"
    ):
        scored(run, tmp_path, ambiguous)
    with_split = (
        "split,image,score\nval,v1,0.9\nval,v2,0.8\ntest,0001,0.7\ntest,0002,0.6\n"
        "near,0001,0.2\nnear,0007,0.1\n"
    )
    _, scores = scored(run, tmp_path, with_split)
    assert scores == {"val": [0.9, 0.8], "test": [0.7, 0.6], "near": [0.2, 0.1]}


def test_parquet_and_the_columns_of_anomalib_are_read(run, tmp_path):
    frame = pl.read_csv(WHOLE.encode()).rename({"image": "image_path", "score": "pred_score"})
    frame.write_parquet(tmp_path / "theirs.parquet")
    (tmp_path / "theirs.parquet").rename(tmp_path / "kept.parquet")
    done = fit_and_score(
        {"theirs": {"method": "imported", "file": "kept.parquet", "higher": "ood"}}, run, tmp_path
    )
    assert done.fit.fitted == ["theirs"]
    assert Scores.read(tmp_path / "scores/theirs/test.parquet").score.tolist() == [-0.7, -0.6]


def test_a_changed_file_is_read_again(run, tmp_path):
    scored(run, tmp_path)
    again, _ = scored(run, tmp_path)
    assert again.fit.unchanged == 1
    (tmp_path / "theirs.csv").write_text(WHOLE.replace("0.7", "0.75"))
    done = fit_and_score(
        {"theirs": {"method": "imported", "file": "theirs.csv"}},
        run,
        tmp_path,
        code={"theirs": "2"},
    )
    assert done.fit.fitted == ["theirs"]
    assert Scores.read(tmp_path / "scores/theirs/test.parquet").score.tolist() == [0.75, 0.6]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            WHOLE.replace("0.7", "nan"),
            r"theirs\.csv: row 2: field 'score': expected a finite number, found 'nan'",
        ),
        (
            WHOLE.replace("0.7", "high"),
            r"row 2: field 'score': expected a finite number, found 'high'",
        ),
        (
            WHOLE.replace("image,", "picture,"),
            r"no column 'image'; its columns are 'picture', 'score'",
        ),
        (WHOLE.replace(",score", ",logit"), r"no column 'score'"),
        (
            WHOLE + "id/0002.jpg,0.5\n",
            r"1 images of split 'test' have several scores, such as '0002'",
        ),
        (
            "image,score\nelse/a.jpg,1\n",
            r"none of its images is in a split: it names a|none of its images is in a split",
        ),
        (
            WHOLE.replace("ood/0007.jpg,0.1\n", ""),
            r"1 of 2 regions of split 'near' have no score, as in image '0007'",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(run, tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        scored(run, tmp_path, content)


def test_images_of_no_split_are_counted_and_named(run, tmp_path):
    done, _ = scored(run, tmp_path, WHOLE + "id/other.jpg,0.5\nid/another.jpg,0.5\n")
    assert done.fit.remarks == {
        "theirs": ["2 images of theirs.csv are in no split, such as 'id/other.jpg'"]
    }


# --------------------------------------------------------------------------------------------------
# OpenOOD


def openood(tmp_path, labels=(3, 5), conf=(0.7, 0.6)):
    """Scores as OpenOOD saves them, in the order of its lists."""
    (tmp_path / "test.txt").write_text("id/0001.jpg 3\nid/0002.jpg 5\n")
    (tmp_path / "near.txt").write_text("ood/0001.jpg 0\nood/0007.jpg 0\n")
    (tmp_path / "val.txt").write_text("id/v1.jpg 0\nid/v2.jpg 1\n")
    np.savez(
        tmp_path / "test.npz", conf=np.array(conf), pred=np.array([3, 3]), label=np.array(labels)
    )
    np.savez(
        tmp_path / "near.npz",
        conf=np.array([0.2, 0.1]),
        pred=np.array([0, 0]),
        label=np.array([-1, -1]),
    )
    np.savez(
        tmp_path / "val.npz",
        conf=np.array([0.9, 0.8]),
        pred=np.array([0, 1]),
        label=np.array([0, 1]),
    )
    splits = ("val", "test", "near")
    return {
        "method": "imported",
        "file": {split: f"{split}.npz" for split in splits},
        "lists": {split: f"{split}.txt" for split in splits},
    }


def test_saved_scores_of_openood_are_in_the_order_of_its_lists(run, tmp_path):
    fit_and_score({"theirs": openood(tmp_path)}, run, tmp_path)
    for split, expected in {"val": [0.9, 0.8], "test": [0.7, 0.6], "near": [0.2, 0.1]}.items():
        assert Scores.read(tmp_path / f"scores/theirs/{split}.parquet").score.tolist() == expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"labels": (5, 3)},
            r"test\.npz: row 0: field 'label': label 5, but test\.txt has 3 there: "
            "is it in the order",
        ),
        ({"labels": (3,), "conf": (0.7,)}, r"1 scores, but test\.txt lists 2 images"),
        ({"conf": (0.7, np.inf)}, r"test\.npz: row 1: field 'conf': not a finite number"),
    ],
)
def test_saved_scores_of_another_order_are_refused(run, tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        fit_and_score({"theirs": openood(tmp_path, **changed)}, run, tmp_path)


def test_saved_scores_without_a_list_are_refused(run, tmp_path):
    entry = openood(tmp_path)
    del entry["lists"]["test"]
    with pytest.raises(
        ParameterError, match=r"test\.npz: scores in the order of a list of images: write `lists:"
    ):
        fit_and_score({"theirs": entry}, run, tmp_path)


# --------------------------------------------------------------------------------------------------
# detectors


@pytest.fixture
def detector(run, tmp_path):
    """The same with two detections in each image."""
    boxes = [[0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 40.0, 30.0]]
    for split, (_, names) in IMAGES.items():
        each = [name for name in names for _ in boxes]
        regions_of(each, boxes * len(names)).write(tmp_path / "regions" / split)
    return run


def with_boxes(*left_out: int) -> str:
    rows = []
    for _, (dataset, names) in list(IMAGES.items())[1:]:
        for name in names:
            rows.append(f"{dataset}/{name}.jpg,{len(rows) / 10},20.3,0,40,30")
            rows.append(f"{dataset}/{name}.jpg,{len(rows) / 10},0,0,10,9.8")
    kept = [row for number, row in enumerate(rows) if number not in left_out]
    return "image,score,xmin,ymin,xmax,ymax\n" + "\n".join(kept) + "\n"


def test_a_detection_has_the_score_of_its_box(detector, tmp_path):
    _, scores = scored(detector, tmp_path, with_boxes())
    # The file has the second box first; coordinates agree to half a pixel.
    assert scores == {
        "val": [0.1, 0.0, 0.3, 0.2],
        "test": [0.5, 0.4, 0.7, 0.6],
        "near": [0.9, 0.8, 1.1, 1.0],
    }


def test_a_detection_without_a_row_is_refused(detector, tmp_path):
    with pytest.raises(
        DataError,
        match=r"1 of 4 regions of split 'test' have no score, as in image '0001': no box of",
    ):
        scored(detector, tmp_path, with_boxes(5))


def test_scores_of_images_do_not_apply_to_detections(detector, tmp_path):
    done, _ = scored(detector, tmp_path, WHOLE)
    assert "add the columns xmin, ymin, xmax and ymax to 'theirs.csv'" in done.fit.refused["theirs"]


def test_scores_that_were_made_elsewhere_say_so(run, tmp_path):
    scored(run, tmp_path)
    assert json.loads((tmp_path / "fitted/theirs/method.json").read_text())["computes"] is False
    assert load(tmp_path / "fitted/theirs").for_split("test").score(
        regions_of(["0001"])
    ).tolist() == [0.7]
