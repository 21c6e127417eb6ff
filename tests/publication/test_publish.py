"""Publishing curated splits: the tables that are read back, and what is refused."""

import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from tests.publication.conftest import ROOT, SPLITS, collect_publication, read_rows

from farther import datasets
from farther.curation.sources import LabelledImages
from farther.datasets.ingest import ingest
from farther.datasets.orientation import KINDS
from farther.datasets.tidying import ALL_IGNORED
from farther.errors import DataError, ParameterError
from farther.publication import Publication, publish
from farther.tables import Images, Objects
from farther.tables.files import digest
from farther.tables.stored import ingest_warnings


def with_first_image(publication: Publication, **columns) -> Publication:
    """A publication whose first split has other values in the first row of its images."""
    split = publication.splits[0]
    first = {name: [value, *getattr(split.images, name)[1:]] for name, value in columns.items()}
    images = split.images.with_columns(**first)
    return replace(
        publication, splits=(replace(split, source=LabelledImages(images, split.objects)),)
    )


@pytest.mark.parametrize(
    ("format", "reader"),
    [
        ("coco", {"format": "coco", "subset_names": SPLITS}),
        ("parquet", {"format": "fmiyc"}),
        ("huggingface", {"format": "fmiyc"}),
        *(("huggingface", {"format": "huggingface", "config": split}) for split in SPLITS),
    ],
)
def test_what_was_published_reads_back_as_the_same_tables(project, tmp_path, format, reader):
    publication = collect_publication(project)
    out = publish(publication, tmp_path / "out", format)
    found = datasets.create(root=out, **reader)
    ingest(found, "again", tmp_path / "tables")
    kinds = set(ingest_warnings(tmp_path / "tables")["counts"])
    # Splits of the tiny world have crowds and difficult objects alone.
    others = {kind for kind in kinds if not kind.startswith(ALL_IGNORED)}
    assert others <= {KINDS["displayed"]}
    for split in publication.splits:
        if reader.get("config", split.name) != split.name:
            continue
        folder = tmp_path / "tables" / ("test" if "config" in reader else split.name)
        images, objects = (
            Images.read(folder / "images.parquet"),
            Objects.read(folder / "objects.parquet"),
        )
        for name in ("image_id", "width", "height", "digest"):
            assert getattr(images, name).tolist() == getattr(split.images, name).tolist(), name
        place = f"{split.name}/" if format == "coco" else ""
        assert images.file.tolist() == [f"{place}{file}" for file in split.images.file]
        wanted, objects = (one[np.argsort(one.object_id)] for one in (split.objects, objects))
        for name in wanted.columns():
            assert getattr(objects, name).tolist() == getattr(wanted, name).tolist(), name


@pytest.mark.parametrize("format", ["coco", "parquet", "huggingface"])
def test_the_same_input_gives_the_same_bytes(project, tmp_path, format):
    folders = [
        publish(collect_publication(project), tmp_path / name, format) for name in ("a", "b")
    ]
    a, b = (
        {path.relative_to(f): digest(path) for path in f.rglob("*") if path.is_file()}
        for f in folders
    )
    assert a == b


def test_an_earlier_publication_is_replaced_as_a_whole(project, tmp_path):
    out = publish(collect_publication(project), tmp_path / "out", "huggingface")
    publish(collect_publication(project, ["open_far"]), out, "parquet")
    assert sorted(path.name for path in out.iterdir()) == ["open_far", "publication.json"]


def test_a_folder_with_anything_of_others_is_left_alone(project, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(ParameterError, match="was not written by `farther benchmark publish`"):
        publish(collect_publication(project), out, "coco")
    (out / "thesis.txt").unlink()
    publish(collect_publication(project), out, "coco")
    (out / ".git").mkdir()
    with pytest.raises(ParameterError, match=r"\.git was not written by `publish`"):
        publish(collect_publication(project), out, "coco")
    assert (out / "annotations").is_dir()
    with pytest.raises(ParameterError, match="is not a folder"):
        publish(collect_publication(project), project / "rules.yaml", "coco")


def test_a_card_that_was_written_on_is_not_lost(project, tmp_path):
    out = publish(collect_publication(project), tmp_path / "out", "huggingface")
    with (out / "README.md").open("a") as file:
        file.write("My words.")
    with pytest.raises(ParameterError, match=r"README\.md was changed since"):
        publish(collect_publication(project), out, "huggingface")
    assert (out / "README.md").read_text().endswith("My words.")


@pytest.mark.parametrize(
    ("columns", "place", "message"),
    [
        ({"digest": "another"}, "field 'digest'", "has changed since it was ingested"),
        ({"file": "val2017/none.jpg"}, "field 'file'", "cannot be read"),
    ],
)
@pytest.mark.parametrize("format", ["coco", "parquet"])
def test_an_image_that_is_not_the_one_that_was_curated_ends_it_and_nothing_is_left(
    project, tmp_path, format, columns, place, message
):
    publication = with_first_image(collect_publication(project), **columns)
    with pytest.raises(DataError, match=message) as caught:
        publish(publication, tmp_path / "out", format)
    assert f"pool_near/images.parquet: row 0: {place}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_stage_publishes_and_refuses_in_one_line(project, tmp_path, commands):
    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [commands / "farther", "benchmark", "publish", "pets", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
        return subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False
        )

    done = run(str(tmp_path / "out"), "--format", "parquet", "--split", "open_far")
    assert done.stdout.splitlines()[0] == "open_far: 1 images, 1 objects", done.stderr
    assert len(read_rows(tmp_path / "out", "open_far")) == 1
    refused = run(str(project / "pool"), "--format", "coco")
    assert refused.returncode == 2
    assert refused.stderr.startswith("farther benchmark publish: ")
    assert len(refused.stderr.splitlines()) == 1
