"""Parquet files of another program, and regions folders that farther wrote."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax
from tests.detectors.imported_world import World

from farther.errors import DataError, ParameterError
from farther.tables import Header, Regions

CLASSES = ("background", "dog", "cat")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def table(image_ids, **columns):
    values = {"box": [0.0, 1.0, 2.0, 3.0], "score": 0.5, "label": 1, **columns}
    repeated = {name: [value] * len(image_ids) for name, value in values.items()}
    return pa.table({"image_id": image_ids, **repeated})


def test_parquet_of_lists_and_doubles_is_taken(world):
    pq.write_table(
        table(["2007_2", "000000000007"], uncertainty=2, latent=[1.0, 2.0]),
        world.root / "d.parquet",
    )
    imported = world.run("parquet", weights=world.root / "d.parquet", classes=["dog", "cat"])
    assert imported["test"].box.tolist() == [[0, 1, 2, 3]]
    assert imported["test"].uncertainty.tolist() == [2]
    assert imported["far"].latent.tolist() == [[1, 2]]
    assert imported["far"].region_id.tolist() == [0]


@pytest.mark.parametrize("ids", [pa.array([2, 7]), pa.array([2.0, 7.0])])
def test_parquet_may_have_numbers_of_images_and_floats_as_labels(world, ids):
    world.add_split("test", "own", ["2"], "JPEGImages/{}.jpg")
    rows = table(ids).set_column(3, "label", pa.array([1.0, 0.0]))
    pq.write_table(rows, world.root / "d.parquet")
    imported = world.run("parquet", weights=world.root / "d.parquet", classes=["dog", "cat"])
    assert (imported["test"].label.tolist(), imported["far"].label.tolist()) == ([1], [0])


def test_parquet_in_parts_may_have_its_header_beside_it(world):
    folder = world.root / "parts"
    folder.mkdir()
    (folder / "regions.json").write_text(
        '{"classes": ["dog", "cat"], "activation": "sigmoid", "score_threshold": 0.3}'
    )
    for name in ("2007_1", "000000000007"):
        pq.write_table(table([name]), folder / f"{name}.parquet")
    imported = world.run("parquet", weights=folder)
    assert (imported["far"].activation, imported["far"].header.score_threshold) == ("sigmoid", 0.3)
    with pytest.raises(
        ParameterError, match=r"'activation' is 'softmax', but regions\.json says 'sigmoid'"
    ):
        world.run("parquet", weights=folder, activation="softmax")


def test_parquet_of_whole_images_says_so(world):
    pq.write_table(table(["2007_1", "000000000007"]), world.root / "d.parquet")
    imported = world.run(
        "parquet", weights=world.root / "d.parquet", classes=["dog", "cat"], whole_images=True
    )
    assert all(folder.header.whole_images for folder in imported.values())
    pq.write_table(table(["2007_1", "2007_1"]), world.root / "d.parquet")
    with pytest.raises(DataError, match="a second region of image '2007_1'"):
        world.run(
            "parquet", weights=world.root / "d.parquet", classes=["dog", "cat"], whole_images=True
        )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": 2}, r"d\.parquet: row 0: field 'label': 2 is not the index of a known class"),
        ({"score": 1.5}, r"d\.parquet: row 0: field 'score': expected 0 to 1"),
        (
            {"box": [0.0, 1.0, -2.0, 3.0]},
            r"d\.parquet: row 0: field 'box': xmax -2 is below xmin 0",
        ),
        ({"logits": [1.0]}, r"d\.parquet: row 0: field 'logits': 1 logits, but 2 classes"),
    ],
)
def test_wrong_parquet_is_named_by_file_row_and_field(world, columns, message):
    pq.write_table(table(["2007_1", "000000000007"], **columns), world.root / "d.parquet")
    with pytest.raises(DataError, match=message):
        world.run("parquet", weights=world.root / "d.parquet", classes=["dog", "cat"])


def test_a_row_of_a_later_part_is_counted_from_that_part(world):
    folder = world.root / "parts"
    folder.mkdir()
    pq.write_table(table(["2007_1"] * 3), folder / "a.parquet")
    pq.write_table(
        pa.concat_tables([table(["2007_1"]), table(["2007_1"], score=7.0)]), folder / "b.parquet"
    )
    with pytest.raises(DataError, match=r"b\.parquet: row 1: field 'score'"):
        world.run("parquet", weights=folder, classes=["dog", "cat"])


def test_a_regions_folder_that_farther_wrote_comes_back_as_it_was(world):
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, 2)).astype(np.float32), np.zeros(3, np.float32)
    header = Header(
        classes=CLASSES, background_index=0, score_threshold=0.05, weight=weight, bias=bias
    )
    written = {}
    for split, names in {"test": ["2007_1", "2007_2", "2007_2"], "far": ["000000000009"]}.items():
        features = rng.normal(size=(len(names), 2)).astype(np.float16)
        logits = features.astype(np.float32) @ weight.T
        label = logits[:, 1:].argmax(axis=1) + 1
        score = softmax(logits, axis=1)[np.arange(len(label)), label]
        number = {"2007_1": 0, "2007_2": 65_536, "000000000009": 65_536}
        region_id = [number[name] + rank for name, rank in zip(names, (0, 0, 1), strict=False)]
        box = 10 * np.sort(rng.uniform(size=(len(names), 2, 2)), axis=1).reshape(-1, 4)
        written[split] = Regions(
            header=header,
            image_id=names,
            region_id=region_id,
            box=box,
            score=score,
            label=label,
            logits=logits,
            features=features,
        )
        written[split].write(world.root / "elsewhere" / split)
    imported = world.run("parquet", weights=world.root / "elsewhere")
    for split, regions in written.items():
        for column, values in regions.columns().items():
            np.testing.assert_array_equal(getattr(imported[split], column), values)
        assert imported[split].features.dtype == np.float16
        np.testing.assert_array_equal(imported[split].weight, weight)
        assert imported[split].background_index == 0


def test_folders_that_describe_other_detectors_do_not_mix(world):
    for split, classes in {"test": ("dog", "cat"), "far": ("dog", "cow")}.items():
        Regions.empty(Header(classes=classes)).write(world.root / "elsewhere" / split)
    with pytest.raises(DataError, match=r"contradicts .*regions\.json"):
        world.run("parquet", weights=world.root / "elsewhere")
