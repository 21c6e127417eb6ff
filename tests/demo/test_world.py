"""The demo world is deterministic, and writing it is safe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.demo.conftest import WORLD, digests

from farther import datasets
from farther.curation import TablesFolder
from farther.datasets.ingest import ingest
from farther.errors import FartherError, ParameterError
from farther.naming.registry import build
from farther_demo import NAMES, DemoWorld, Subsets, generate, generate_all
from farther_demo.scene import scene


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("farther_demo.world.count_cores", lambda: 2)
    generate_all(tmp_path, WORLD)
    assert {name: digests(tmp_path / name) for name in NAMES} == {
        name: digests(folders[name]) for name in NAMES
    }


def test_a_scene_does_not_depend_on_how_many_there_are(folders, tmp_path):
    fewer = build(DemoWorld, "demo", {"size": 96, "voc": {"train": 2, "val": 0, "test": 0}})
    generate("voc", tmp_path / "voc", fewer)
    expected = digests(folders["voc"])
    written = digests(tmp_path / "voc")
    files = [file for file in written if file.endswith((".jpg", ".xml"))]
    assert len(files) == 4
    for file in files:
        assert written[file] == expected[file]


@pytest.mark.parametrize("name", ["voc", "bdd", "drawings"])
def test_a_benchmark_selects_the_same_images_from_those_that_are_written_as_from_all(
    folders, tmp_path, name
):
    limits = Subsets(train=4, val=1, test=6)
    counts = generate(name, tmp_path / "demo", replace(WORLD, most=limits))
    assert counts["test"] == 6
    dataset_format = {"drawings": "image_folder"}.get(name, name)
    for tables, root in (("all", folders[name]), ("written", tmp_path / "demo")):
        reader = datasets.create(dataset_format, root=str(root))
        ingest(reader, name, tmp_path / tables / name)

    for subset in ("train", "val", "test"):
        source = TablesFolder(tmp_path / "all").source(name, subset)
        written = TablesFolder(tmp_path / "written").source(name, subset)
        selected = source.at_most(getattr(limits, subset))
        assert written.images.image_id.tolist() == selected.images.image_id.tolist()
        first = source.at_most(1).images.digest.tolist()
        assert written.at_most(1).images.digest.tolist() == first


def test_another_seed_gives_other_pictures():
    first = scene(DemoWorld(size=96, seed=0), "voc", "train", 0).image
    second = scene(DemoWorld(size=96, seed=1), "voc", "train", 0).image
    assert first != second


def test_subsets_and_datasets_share_no_picture(folders):
    image_digests = []
    for folder in folders.values():
        for file, digest in digests(folder).items():
            if file.endswith(".jpg"):
                image_digests.append(digest)
    assert len(image_digests) == 15 + 114 + 130 + 130 + 80 + 34
    assert len(set(image_digests)) == len(image_digests)


def test_a_run_that_fails_leaves_no_dataset(tmp_path, monkeypatch):
    def broken(world, dataset, subset, index):
        if index == 3:
            raise OSError("disk full")
        return scene(world, dataset, subset, index)

    monkeypatch.setattr("farther_demo.world.scene", broken)
    with pytest.raises(OSError, match="disk full"):
        generate("voc", tmp_path / "voc", WORLD)
    assert not (tmp_path / "voc").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(FartherError, match="other than a demo dataset"):
        generate("voc", tmp_path, WORLD)
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


def test_unknown_names_and_parameters_are_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ParameterError, match=r"'lvis'\. Known: voc, bdd, coco, openimages"):
        generate("lvis", tmp_path / "lvis", WORLD)
    with pytest.raises(ParameterError, match=r"unknown parameter 'sizes'.*jpeg_quality"):
        build(DemoWorld, "demo", {"sizes": 96})
    with pytest.raises(ParameterError, match="held_out"):
        build(DemoWorld, "demo", {"held_out": 1.5})


def test_every_dataset_names_whose_drawings_it_shows(folders):
    for folder in folders.values():
        text = (folder / "ATTRIBUTION.txt").read_text()
        assert "OpenMoji" in text
        assert "CC BY-SA 4.0" in text
