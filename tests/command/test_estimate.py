"""`farther doctor --estimate`: time and disk of a run, from a sample of images."""

import itertools
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.command.parameters import change
from tests.support.clock import calls_take

from farther.command.doctor.estimate import estimate
from farther.command.doctor.images import count_subset_images, images_per_split, is_made_with
from farther.command.doctor.sampling import REGIONS, repeat_regions, sample_images
from farther.command.project import Project
from farther.errors import DataError, ParameterError
from farther.tables import Header, Regions


def test_images_are_those_of_the_published_subsets_until_curate_counted_them(here):
    counts = images_per_split(Project(), "voc")
    assert counts["train"] == 5011 + 11540 and counts["test"] == 4952
    assert counts["val"] == 2000  # `most` says so
    assert counts["coco_near"] == 1174  # FMIYC, Table 2
    table = here / "artifacts/splits/voc/coco_near/images.parquet"
    table.parent.mkdir(parents=True)
    pq.write_table(pa.table({"image_id": ["a", "b", "c"]}), table)
    assert images_per_split(Project(), "voc")["coco_near"] == 3


def test_a_demo_dataset_has_the_size_that_the_parameters_give(here):
    root = {"format": "coco", "root": "artifacts/demo/coco"}
    change(lambda params: params.update(demo={"coco": 7, "voc": {"train": 3}}))
    change(
        lambda params: params["datasets"].update(
            coco=root, voc={"format": "voc", "root": "artifacts/demo/voc"}
        )
    )
    assert count_subset_images(Project(), "coco", "val2017") == 7
    assert count_subset_images(Project(), "voc", "train") == 3


def test_artifacts_of_other_parameters_are_not_counted(here):
    params = Project().params
    lock = {
        "stages": {
            "curate": {
                "params": {"params.yaml": {"benchmarks": {"voc": params["benchmarks"]["voc"]}}}
            }
        }
    }
    Path("dvc.lock").write_text(yaml.safe_dump(lock))
    assert is_made_with(Project(), "curate", "benchmarks.voc")
    assert not is_made_with(Project(), "curate", "benchmarks.bdd")
    change(lambda params: params["benchmarks"]["voc"]["most"].update(val=1000))
    assert not is_made_with(Project(), "curate", "benchmarks.voc")


def test_a_sample_of_the_images_gives_time_and_disk_for_each_stage(data, here, switch, monkeypatch):
    calls_take(monkeypatch, itertools.repeat(1.0))
    switch("fmiyc-rebuilt", data)
    costs = {cost.stage: cost for cost in estimate(Project(), 4, ["voc-yolov8"])}
    infer = costs["infer@voc-yolov8"]
    # Nothing was ingested: as many images as the published subsets have, those of COCO and
    # OpenImages counted twice. Of the training sets, at most 500 candidates for each of the four
    # splits.
    images = 16551 + 2000 + 4952 + 2 * (5000 + 41620) + 4 * 500
    assert f"× {images:,} images" in infer.how and "5 measured" in infer.how  # one of each dataset
    assert infer.seconds == pytest.approx(images / 5)  # the five took 1 s
    assert infer.bytes > images * 10
    scored = costs["fit, score: voc-yolov8, msp"]
    assert "fitted in 1.000 s and scored in 1.000 s" in scored.how
    assert scored.seconds is not None
    assert "needs features" in costs["fit, score: voc-yolov8, knn"].how
    assert costs["ingest@coco"].seconds is not None
    metrics = costs["evaluate: voc-yolov8, metrics"]
    assert "times in 1.00 s" in metrics.how
    assert "8 splits and 16 methods" in metrics.how
    assert metrics.seconds is not None


def test_an_estimate_says_what_layers_and_passes_take(data, here, switch, monkeypatch):
    calls_take(monkeypatch, itertools.repeat(1.0))

    def ask(params):
        stored = {"latents": ["backbone.steps.1"], "grams": ["backbone.steps.1"], "gram_powers": 2}
        passes = {
            "rankfeat": {},
            "dropout": {"passes": 4},
            "stepped": {"kind": "perturb", "loss": "mahalanobis"},
        }
        weights = str(Path(__file__).parents[2] / "data/demo/voc-faster_rcnn.safetensors")
        run = {"adapter": "faster_rcnn", "benchmark": "voc", "weights": weights}
        params["detectors"] = {"mine": {**run, "params": stored, "passes": passes}}
        knn = {"method": "knn", "layer": "backbone.steps.1"}
        energy = {"method": "energy", "pass": "rankfeat"}
        params["methods"] = {
            "per_layer": knn,
            "rank": energy,
            "odin": {"method": "mls", "pass": "stepped"},
        }

    switch("fmiyc-rebuilt", data)
    change(ask)
    costs = {cost.stage: cost for cost in estimate(Project(), 4, ["mine"])}
    infer, again = costs["infer@mine"], costs["infer@mine: pass rankfeat"]
    channels = int(re.search(r"latent\.backbone\.steps\.1 (\d+) B", infer.how)[1]) // 4
    assert (
        f"gram.backbone.steps.1 {2 * 4 * channels} B" in infer.how and "GiB of memory" in infer.how
    )
    assert 0 < again.bytes < infer.bytes and again.seconds is not None and "latent" not in again.how
    assert "mean_probabilities" in costs["infer@mine: pass dropout"].how
    assert (
        "not measured" in costs["infer@mine: pass stepped"].how
    )  # by the distances of regions that are not there
    assert costs["fit, score: mine, odin"].how == "not measured: the pass 'stepped' was not"
    assert costs["fit, score: mine, rank"].seconds is not None
    fitted = float(
        re.search(r"there will be about ([\d,]+)", costs["fit, score: mine, per_layer"].how)[
            1
        ].replace(",", "")
    )
    assert (
        costs["fit, score: mine, per_layer"].bytes > 4 * channels * fitted
    )  # each training vector


def test_an_estimate_without_images_is_empty_and_wrong_arguments_are_refused(here):
    costs = {cost.stage: cost for cost in estimate(Project(), 4, ["voc-yolov8"])}
    assert costs["infer@voc-yolov8"].seconds is None
    with pytest.raises(ParameterError, match="Did you mean 'voc-yolov8'"):
        estimate(Project(), 4, ["voc-yolov"])
    with pytest.raises(ParameterError, match="at least 2"):
        estimate(Project(), 1)


def test_a_sample_of_whole_images_is_repeated_as_other_images():
    logits = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32)
    header = Header(classes=("cat", "dog"), activation="softmax", whole_images=True)
    regions = Regions(
        image_id=["a", "b"],
        region_id=[0, 0],
        box=np.tile((0.0, 0.0, 9.0, 9.0), (2, 1)),
        score=np.array([0.7, 0.9]),
        label=logits.argmax(axis=1),
        logits=logits,
        header=header,
    )
    assert len(set(repeat_regions(regions).image_id)) == REGIONS


def test_an_estimate_follows_links_to_folders_and_leaves_out_imported_runs(here, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.png").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/images").symlink_to(tmp_path / "elsewhere")
    assert sample_images(tmp_path / "root", 1) == [tmp_path / "root/images/a.png"]
    line = {"adapter": "coco_results", "benchmark": "voc", "weights": "r.json"}
    change(lambda params: params.update(detectors={"theirs": line}))
    costs = {cost.stage: cost for cost in estimate(Project(), 4)}
    assert costs["infer@theirs"].how == "imports detections: nothing to measure"


def test_extracted_images_are_sampled_where_they_are_the_root_only(tmp_path):
    extracted = tmp_path / "extracted-images"
    extracted.mkdir()
    (extracted / "000000.png").touch()
    assert sample_images(extracted, 1) == [extracted / "000000.png"]
    assert sample_images(tmp_path, 1) == []


def test_an_estimate_of_an_absent_checkpoint_names_it(data, here):
    change(lambda params: params["datasets"]["voc"].update(root=str(data / "VOCdevkit")))
    with pytest.raises(DataError, match=r"voc-yolov8n\.pt: the checkpoint does not exist"):
        estimate(Project(), 4, ["voc-yolov8"])
