"""A working project, damaged in many ways: `farther doctor` names each before anything runs."""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from tests.stages.in_process import OF_RUN
from tests.stages.in_process import run as run_stages
from tests.support.cases import slow_but

from farther.command.before_run import refuse
from farther.command.doctor import PROBLEMS, examine
from farther.command.project import Project
from farther.errors import FartherError, ParameterError

ROOT = Path(__file__).parents[2]
KNOWN = ("cat", "dog")


def photos(
    folder: Path, subset: str, categories: tuple[str, ...], count: int = 6
) -> list[dict[str, Any]]:
    """A COCO subset of a few images of one object each; returns detections of these objects."""
    images, annotations, detections = [], [], []
    (folder / subset).mkdir(parents=True)
    (folder / "annotations").mkdir(exist_ok=True)
    for n in range(count):
        Image.new("RGB", (40, 30), (n, 0, 0)).save(folder / subset / f"{subset}{n}.png")
        box = [4 + n, 5, 20, 15]
        images.append({"id": f"{subset}{n}", "file_name": f"{subset}{n}.png"})
        annotations.append(
            {"id": n, "image_id": f"{subset}{n}", "category_id": n % len(categories), "bbox": box}
        )
        for score in (0.9 - n / 20, 0.3):
            label = KNOWN[n % 2] if score > 0.5 else KNOWN[n % 2 - 1]
            detections.append(
                {"image_id": f"{subset}{n}", "category_id": label, "bbox": box, "score": score}
            )
    described = [{"id": k, "name": name} for k, name in enumerate(categories)]
    content = {"images": images, "annotations": annotations, "categories": described}
    (folder / "annotations" / f"instances_{subset}.json").write_text(json.dumps(content))
    return detections


RULES = {
    "id_classes": {"cat": {"pets": ["cat"]}, "dog": {"pets": ["dog"]}},
    "protocols": {"paper": {"near": {"wild": {"cat": ["lynx"]}}}},
}

PARAMS: dict[str, Any] = {
    "datasets": {
        "pets": {"format": "coco", "root": "photos/pets", "subset_names": ["train", "val", "test"]},
        "wild": {"format": "coco", "root": "photos/wild", "subset_names": ["all"]},
    },
    "benchmarks": {
        "pets": {
            "id": "pets",
            "rules": "data/benchmarks/pets.yaml",
            "decisions": "data/decisions/pets.csv",
            "splits": {
                "wild_near": {"dataset": "wild", "subset": "all", "distance": "near"},
                "wild_far": {"dataset": "wild", "subset": "all", "distance": "far"},
            },
        }
    },
    "derived": {"paste": {}, "corrupt": {}, "blank": {}},
    "enrich": {},
    "demo": {},
    "cost": {},
    "embed": {"weights": "data/clip", "encoder": {"model": "local-dir:data/clip"}, "images": {}},
    "stratify": {},
    "detectors": {
        "theirs": {
            "adapter": "coco_results",
            "benchmark": "pets",
            "weights": "results.json",
            "params": {"classes": list(KNOWN)},
        }
    },
    "inference": {},
    "threshold": {"rule": "best_f1"},
    "fit": {},
    "methods": {"confidence": {}},
    "scoring": {},
    "evaluate": {"replicates": 0, "kept": [0.95], "confidences": [0.5]},
    "deploy": {"max_false_alarms": 0.02},
    "report": {"examples": 0},
}


def write(folder: Path, params: dict[str, Any]) -> None:
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


@pytest.fixture(scope="module")
def working(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("working")
    shutil.copy(ROOT / "dvc.yaml", folder)
    (folder / "lib").mkdir()
    for name in ("stages", "lib/farther"):
        (folder / name).symlink_to(ROOT / name)
    for name in (
        "benchmarks",
        "candidates",
        "clip",
        "decisions",
        "demo",
        "names",
        "published",
        "similarity",
    ):
        (folder / "data" / name).mkdir(parents=True)
    (folder / "extensions").mkdir()
    (folder / ".dvc").mkdir()
    detections = [
        row
        for subset in ("train", "val", "test")
        for row in photos(folder / "photos/pets", subset, KNOWN)
    ]
    detections += photos(folder / "photos/wild", "all", ("lynx", "kite"))
    (folder / "results.json").write_text(json.dumps(detections))
    (folder / "data/benchmarks/pets.yaml").write_text(yaml.safe_dump(RULES))
    header = "time,reviewer,dataset,subset,image_id,decision,id_class,note\n"
    (folder / "data/decisions/pets.csv").write_text(header)
    write(folder, PARAMS)
    return folder


@pytest.fixture
def project(working, tmp_path, monkeypatch) -> Path:
    """A copy of the working project, as the current folder."""
    folder = tmp_path / "project"
    shutil.copytree(working, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def problems() -> list[str]:
    return [
        f"{finding.name}: {finding.text}"
        for finding in examine(Project())
        if finding.state in PROBLEMS
    ]


#: The stages that come before those of a run's methods, and these.
BEFORE_RUN = ("code_digests", "ingest pets", "ingest wild", "curate", "infer theirs")
RUN_STAGES = tuple(f"{stage} theirs" for stage in OF_RUN)


@pytest.mark.slow
def test_what_doctor_passes_runs(project):
    assert problems() == []
    run_stages(Path(), *BEFORE_RUN, *RUN_STAGES, "report")
    counts = json.loads(Path("artifacts/counts/ingest/wild.json").read_text())
    assert counts == {"all": {"images": 6, "objects": 6, "categories": 2, "warnings": 0}}
    assert (
        json.loads(Path("artifacts/metrics/theirs/wild_far/confidence.json").read_text())["auroc"]
        is not None
    )
    assert problems() == []


@pytest.mark.slow
def test_artifacts_do_not_depend_on_where_the_project_is(working, tmp_path, monkeypatch):
    content = {}
    for depth in ("a", "b/c/d"):
        folder = tmp_path / depth / "project"
        shutil.copytree(working, folder, symlinks=True)
        monkeypatch.chdir(folder)
        run_stages(Path(), *BEFORE_RUN, *RUN_STAGES, "report")
        content[depth] = artifact_bytes()
    assert content["a"].keys() == content["b/c/d"].keys()
    different = [name for name, data in content["a"].items() if content["b/c/d"][name] != data]
    assert different == []


Edit = Callable[[dict[str, Any]], Any]


def edits(file: str, edit: Edit) -> Callable[[], None]:
    """A change of a YAML or JSON file."""

    def damage() -> None:
        content = yaml.safe_load(Path(file).read_text())
        edit(content)
        Path(file).write_text(json.dumps(content))

    return damage


def changed(*keys: str, **values: Any) -> Callable[[], None]:
    """Other values in the part of params.yaml at `keys`."""

    def edit(content: dict[str, Any]) -> None:
        part_at(content, keys).update(values)

    return edits("params.yaml", edit)


def without(*keys: str) -> Callable[[], None]:
    """params.yaml without the part at `keys`."""

    def edit(content: dict[str, Any]) -> None:
        *parents, key = keys
        del part_at(content, parents)[key]

    return edits("params.yaml", edit)


def part_at(content: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    for key in keys:
        content = content[key]
    return content


def run(**values: Any) -> Callable[[], None]:
    return changed("detectors", "theirs", **values)


def rules(edit: Edit) -> Callable[[], None]:
    return edits("data/benchmarks/pets.yaml", edit)


def removed(path: str) -> Callable[[], None]:
    def damage() -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink()

    return damage


def written(path: str, text: str) -> Callable[[], None]:
    def damage() -> None:
        Path(path).write_text(text)

    return damage


def detection(row: int, **values: Any) -> Callable[[], None]:
    return edits("results.json", lambda detections: detections[row].update(values))


def rename_images(detections: Any) -> None:
    for detection in detections:
        detection["image_id"] = f"x{detection['image_id']}"


def keep_first_split(detections: Any) -> None:
    del detections[12:]


def divide_boxes(annotations: dict[str, Any]) -> None:
    """Fractions of the image in the place of pixels."""
    for annotation in annotations["annotations"]:
        annotation["bbox"] = [0.1, 0.2, 0.3, 0.4]


def cut(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:-40])


TRAIN = "photos/pets/annotations/instances_train.json"
ALL = "photos/wild/annotations/instances_all.json"

#: {what is damaged: the damage, and a part of the finding}.
DAMAGES: dict[str, tuple[Callable[[], None], str]] = {
    "format": (changed("datasets", "pets", format="coc"), "unknown dataset format 'coc'"),
    "no format": (without("datasets", "pets", "format"), "'format' is missing"),
    "no root": (without("datasets", "pets", "root"), "'root' is missing"),
    "root": (changed("datasets", "pets", root="photos/dogs"), "annotations"),
    "parameter of a reader": (changed("datasets", "pets", subset=["a"]), "parameter 'subset'"),
    "subset of a reader": (
        changed("datasets", "wild", subset_names=["one"]),
        "uses the subset 'all', but only one",
    ),
    "subset of a split": (
        changed("benchmarks", "pets", "splits", "wild_far", subset="al"),
        "annotations",
    ),
    "ID dataset": (changed("benchmarks", "pets", id="pet"), "unknown dataset 'pet'. Did you mean"),
    "OOD dataset": (
        changed("benchmarks", "pets", "splits", "wild_far", dataset="wilde"),
        "unknown dataset 'wilde'",
    ),
    "distance": (
        changed("benchmarks", "pets", "splits", "wild_far", distance="wide"),
        "parameter 'splits.wild_far.distance'",
    ),
    "vocabulary": (
        changed("benchmarks", "pets", "splits", "wild_far", vocabulary="coco"),
        "no rules for the vocabulary 'coco'. Known: pets, wild. Name one of these",
    ),
    "protocol": (changed("benchmarks", "pets", protocol="papers"), "no protocol 'papers'"),
    "no rules": (without("benchmarks", "pets", "rules"), "'rules' is missing"),
    "absent rules": (removed("data/benchmarks/pets.yaml"), "pets.yaml: the file does not exist"),
    "rules without protocols": (
        rules(lambda r: r.pop("protocols")),
        "parameter 'protocols' is missing",
    ),
    "near class": (
        rules(lambda r: r["protocols"]["paper"]["near"]["wild"].update(cow=["yak"])),
        "'cow' is not among id_classes",
    ),
    "absent decisions": (removed("data/decisions/pets.csv"), "leave `decisions` out"),
    "decisions elsewhere": (
        changed("benchmarks", "pets", decisions="pets.csv"),
        "decisions belong in data/decisions",
    ),
    "decisions of another form": (
        written("data/decisions/pets.csv", "image,fate\na,far\n"),
        "pets.csv",
    ),
    "no adapter": (without("detectors", "theirs", "adapter"), "'adapter' is missing"),
    "adapter": (run(adapter="coco_result"), "Did you mean 'coco_results'"),
    "no weights": (without("detectors", "theirs", "weights"), "'weights' is missing"),
    "absent weights": (removed("results.json"), "coco_results checkpoint"),
    "benchmark of a run": (run(benchmark="pet"), "unknown benchmark 'pet'"),
    "no classes": (without("detectors", "theirs", "params"), "give the parameter 'classes'"),
    "other classes": (
        changed("detectors", "theirs", "params", classes=["cat", "hound"]),
        "not ID classes of the benchmark: hound",
    ),
    "method": (changed("methods", confidnce={}), "Did you mean 'confidence'"),
    "parameter of a method": (changed("methods", energy={"temp": 1}), "unknown parameter 'temp'"),
    "split of a search": (
        changed("methods", b={"search": {"ood_split": "x", "grids": {"msp": {}}}}),
        "unknown OOD split of pets 'x'",
    ),
    "split to fit on": (changed(fit={"split": "trian"}), "fit.split is 'trian'"),
    "no section": (without("stratify"), "section 'stratify' is missing"),
    "no derived": (without("derived"), "section 'derived.paste' is missing"),
    "evaluate": (changed("evaluate", iou=2), "less than or equal to 1"),
    "report": (changed("report", example=3), "unknown parameter 'example'"),
    "absent encoder": (removed("data/clip"), "weights of the image encoder"),
    "rules elsewhere": (
        changed("benchmarks", "pets", rules="pets.yaml"),
        "belong in data/benchmarks",
    ),
    "absent folder": (removed("data/candidates"), "not there; stage 'curate' depends on it"),
    "truncated annotations": (
        written(TRAIN, '{"images": [{"id": 1, "file'),
        "Is the file complete?",
    ),
    "no images": (edits(ALL, lambda a: a.update(images=[], annotations=[])), "all has no image"),
    "absent image": (
        removed("photos/pets/val/val3.png"),
        "val3.png: the file does not exist (1 of 6 images of val)",
    ),
    "text for an image": (
        written("photos/pets/val/val3.png", "no image"),
        "(1 of 6 images of val, more than max_warnings = 0.05 allows)",
    ),
    "score of a detection": (
        detection(9, score=1.5),
        "row 9: field 'score': expected 0 to 1, found 1.5",
    ),
    "other names of images": (
        edits("results.json", rename_images),
        "no image of split 'train' is in the detections. They name 'xtrain0'",
    ),
    "detections of one split only": (
        edits("results.json", keep_first_split),
        "no image of split 'val' is in the detections",
    ),
    "fractions": (edits(TRAIN, divide_boxes), "6 of 6 boxes lie in the first two pixels"),
}


#: A second run, whose features are longer; doctor reads no features, the method does.
RUNS = {"theirs": 2, "other": 3}


@pytest.fixture(scope="module")
def evaluated(working, tmp_path_factory) -> Path:
    """The working project after all stages, with two runs and a method fitted to features."""
    folder = tmp_path_factory.mktemp("evaluated") / "project"
    shutil.copytree(working, folder, symlinks=True)
    rows = json.loads((folder / "results.json").read_text())
    content = {**PARAMS, "methods": {"confidence": {}, "mahalanobis": {}}, "detectors": {}}
    for name, length in RUNS.items():
        featured = [
            {**row, "features": [n % 7, *[row["score"]] * (length - 1)]}
            for n, row in enumerate(rows)
        ]
        (folder / f"{name}.json").write_text(json.dumps(featured))
        content["detectors"][name] = {**PARAMS["detectors"]["theirs"], "weights": f"{name}.json"}
    write(folder, content)
    of_runs = [f"{stage} {name}" for stage in ("infer", *OF_RUN) for name in RUNS]
    run_stages(folder, "code_digests", "ingest pets", "ingest wild", "curate", *of_runs, "report")
    return folder


def half(path: str) -> Callable[[], None]:
    def damage() -> None:
        content = Path(path).read_bytes()
        Path(path).write_bytes(content[: len(content) // 2])

    return damage


def replaced(path: str, other: str) -> Callable[[], None]:
    def damage() -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
            shutil.copytree(other, path)
        else:
            shutil.copy(other, path)

    return damage


def artifact_bytes() -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path("artifacts").rglob("*") if file.is_file()}


FITTED = "artifacts/fitted/theirs"
SCORES = "artifacts/scores/theirs"
T_STAR = "artifacts/thresholds/theirs.json"
CHOICE = "artifacts/choices/theirs.json"
TAU = "artifacts/evaluation/theirs/methods/mahalanobis/threshold.json"
STATE = f"{FITTED}/mahalanobis/state.safetensors"
VAL_SCORES = f"{SCORES}/mahalanobis/val.parquet"

#: Stages that read what `fit`, and what `score`, wrote.
AFTER_FIT = ("score", "evaluate", "choose")
AFTER_SCORE = ("evaluate", "choose")

#: Damages of outputs of a run's stages: how, the stage that makes the output, and what later stages
#: say.
DAMAGED_OUTPUTS: dict[str, tuple[Callable[[], None], str, dict[str, str]]] = {
    "half a state": (half(STATE), "fit", {"score": f"{STATE}: not a readable safetensors file"}),
    "no state": (removed(STATE), "fit", {"score": f"{STATE}: the file does not exist"}),
    "half a method": (
        half(f"{FITTED}/mahalanobis/method.json"),
        "fit",
        dict.fromkeys(AFTER_FIT, f"{FITTED}/mahalanobis/method.json: row"),
    ),
    "no method": (
        removed(f"{FITTED}/mahalanobis"),
        "fit",
        dict.fromkeys(AFTER_FIT, f"{FITTED}/mahalanobis/method.json: the file does not exist"),
    ),
    "half a list of methods": (
        half(f"{FITTED}/methods.json"),
        "fit",
        dict.fromkeys(AFTER_FIT, f"{FITTED}/methods.json: row"),
    ),
    "no fitted methods": (
        removed(FITTED),
        "fit",
        dict.fromkeys(
            AFTER_FIT,
            f"{FITTED}/methods.json: the file does not exist: "
            "run `farther repro fit`, or `dvc pull`",
        ),
    ),
    "state of another detector": (
        replaced(f"{FITTED}/mahalanobis", "artifacts/fitted/other/mahalanobis"),
        "fit",
        {
            "score": "artifacts/regions/theirs/test: field 'features': 2 values per row, "
            "but mahalanobis was fitted on 3"
        },
    ),
    "half a threshold": (half(T_STAR), "fit", dict.fromkeys(AFTER_SCORE, f"{T_STAR}: row")),
    "no threshold": (
        removed(T_STAR),
        "fit",
        dict.fromkeys(AFTER_SCORE, f"{T_STAR}: the file does not exist"),
    ),
    "half the truth": (half("artifacts/truth/theirs.parquet"), "fit", {}),
    "half of the scores": (
        half(VAL_SCORES),
        "score",
        dict.fromkeys(AFTER_SCORE, f"{VAL_SCORES}: not a readable Parquet file"),
    ),
    "no scores of a split": (
        removed(VAL_SCORES),
        "score",
        dict.fromkeys(
            AFTER_SCORE, f"{VAL_SCORES}: no scores of split 'val': run `farther repro score`"
        ),
    ),
    "no scores": (
        removed(SCORES),
        "score",
        dict.fromkeys(AFTER_SCORE, "no scores of split 'val': run `farther repro score`"),
    ),
    "scores of other regions": (
        replaced(VAL_SCORES, f"{SCORES}/mahalanobis/wild_far.parquet"),
        "score",
        dict.fromkeys(
            AFTER_SCORE,
            f"{VAL_SCORES}: 6 scores, but 12 regions: run `farther repro score`",
        ),
    ),
    "scores of as many other regions": (
        replaced(VAL_SCORES, f"{SCORES}/mahalanobis/test.parquet"),
        "score",
        dict.fromkeys(AFTER_SCORE, "has no score: run `farther repro score`"),
    ),
    "no proposals": (removed("artifacts/recovered/theirs"), "evaluate", {}),
    "half an evaluation": (
        half("artifacts/results/theirs.json"),
        "evaluate",
        {"report": "artifacts/results/theirs.json: row"},
    ),
    "half a τ": (half(TAU), "evaluate", {}),
    "no τ": (removed(TAU), "evaluate", {}),
    "half a choice": (half(CHOICE), "choose", {"report": f"{CHOICE}: row"}),
    "no choice": (removed(CHOICE), "choose", {}),
}


@pytest.fixture
def outputs(evaluated, tmp_path, monkeypatch) -> Path:
    """A copy of the evaluated project, as the current folder."""
    folder = tmp_path / "project"
    shutil.copytree(evaluated, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def stage_of(name: str) -> str:
    return name if name == "report" else f"{name} theirs"


#: One damage of each kind of output.
QUICK_OUTPUTS = (
    "half a state",
    "no method",
    "state of another detector",
    "no threshold",
    "half the truth",
    "half of the scores",
    "scores of other regions",
    "no proposals",
    "half an evaluation",
    "no τ",
    "half a choice",
)


@pytest.mark.parametrize("name", slow_but(QUICK_OUTPUTS, DAMAGED_OUTPUTS))
def test_a_damaged_output_is_named_by_the_stages_that_read_it_and_made_again_by_its_own(
    outputs, name
):
    damage, made_by, messages = DAMAGED_OUTPUTS[name]
    whole = artifact_bytes()
    damage()
    for stage, message in messages.items():
        with pytest.raises(FartherError) as caught:
            run_stages(outputs, stage_of(stage))
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    run_stages(outputs, stage_of(made_by))
    assert artifact_bytes() == whole


@pytest.mark.parametrize("stage", ["fit", "score"])
def test_a_damaged_record_is_named_and_may_be_deleted(outputs, stage):
    output = {"fit": "fitted", "score": "scores"}[stage]
    record = Path(f"artifacts/records/{output}/theirs.json")
    whole = artifact_bytes()
    half(str(record))()
    with pytest.raises(FartherError, match="not a record of kept outputs: delete it"):
        run_stages(outputs, stage_of(stage))
    record.unlink()
    run_stages(outputs, stage_of(stage))
    assert artifact_bytes() == whole


@pytest.mark.parametrize("stage", ["infer", *OF_RUN])
def test_a_run_that_was_removed_from_the_parameters_is_named_with_those_that_are_there(
    outputs, stage
):
    without("detectors", "theirs")()
    with pytest.raises(
        ParameterError, match=r"no 'detectors.theirs'. Known here: other|unknown run 'theirs'"
    ):
        run_stages(outputs, stage_of(stage))


def notes() -> list[str]:
    return [finding.text for finding in examine(Project()) if finding.state == "note"]


def test_a_truncated_image_stops_only_a_run_that_opens_images(project):
    cut("photos/pets/val/val3.png")
    message = "val3.png: cannot be read: image file is truncated"
    assert problems() == []
    (note,) = [text for text in notes() if message in text]
    assert note.endswith(
        "(1 of 6 images of val that were looked at). Only detectors would open them"
    )
    run(adapter="yolo", weights=str(ROOT / "data/demo/voc-yolov8.safetensors"), params={})()
    (wrong,) = [text for text in problems() if message in text]
    assert wrong.endswith("These are more than max_failures = 0.01 allows: replace or delete them")
    changed("inference", max_failures=0.5)()
    (note,) = [text for text in notes() if message in text]
    assert note.endswith("`infer` leaves them out")


def test_a_few_files_that_are_not_images_are_a_note_where_ingest_allows_them(project):
    Path("photos/pets/val/val3.png").write_text("no image")
    changed("datasets", "pets", max_warnings=0.2)()
    assert problems() == []
    (note,) = [text for text in notes() if "val3.png" in text]
    assert note.endswith("(1 of 6 images of val that were looked at). `ingest` leaves them out")


#: One or two damages of each section and of each kind of file.
QUICK_DAMAGES = (
    "format",
    "no root",
    "ID dataset",
    "distance",
    "vocabulary",
    "absent rules",
    "rules without protocols",
    "decisions elsewhere",
    "decisions of another form",
    "adapter",
    "absent weights",
    "other classes",
    "parameter of a method",
    "split of a search",
    "split to fit on",
    "no section",
    "evaluate",
    "truncated annotations",
    "absent image",
    "score of a detection",
    "other names of images",
    "fractions",
)


@pytest.mark.parametrize("name", slow_but(QUICK_DAMAGES, DAMAGES))
def test_doctor_names_a_damage(project, name):
    damage, message = DAMAGES[name]
    damage()
    texts = problems()
    assert any(message in text for text in texts), texts
    assert not any("ArgsKwargs" in text for text in texts)


def test_repro_refuses_nothing_where_doctor_finds_nothing(project):
    refuse(Project())


@pytest.mark.parametrize(
    "name",
    [
        "format",
        "no format",
        "no root",
        "root",
        "ID dataset",
        "distance",
        "protocol",
        "absent rules",
        "benchmark of a run",
    ],
)
def test_repro_refuses_what_doctor_names_before_a_stage_runs(project, name):
    damage, text = DAMAGES[name]
    damage()
    with pytest.raises(FartherError, match=re.escape(text)):
        refuse(Project())
    assert not Path("artifacts").exists()


def test_repro_suggests_the_adapter_that_is_meant(project):
    run(adapter="coco_result")()
    with pytest.raises(
        ParameterError, match=r"adapter 'coco_result'\. Did you mean 'coco_results'"
    ):
        refuse(Project())


def test_repro_checks_parameters_of_the_adapter_of_a_new_run(project):
    run(params={"clases": ["cat", "dog"]})()
    with pytest.raises(ParameterError, match="unknown parameter 'clases'"):
        refuse(Project())


def test_a_stage_that_is_named_runs_although_another_run_is_wrong(project):
    edits("params.yaml", lambda content: content["detectors"].update(other={"adapter": "yolov"}))()
    refuse(Project(), ["infer@theirs"])
    with pytest.raises(ParameterError, match="unknown adapter 'yolov'"):
        refuse(Project(), ["infer@other"])


@pytest.mark.parametrize("file", ["params.yaml", "dvc.yaml", "data/benchmarks/pets.yaml"])
def test_a_merge_conflict_is_named_with_its_line(project, file):
    first, *rest = Path(file).read_text().splitlines(keepends=True)
    conflict = ["<<<<<<< HEAD\n", "=======\n", ">>>>>>> theirs\n"]
    Path(file).unlink()  # it may be a link
    Path(file).write_text("".join([first, *conflict, *rest]))
    with pytest.raises(FartherError, match=rf"{file}: a merge conflict at line 2: keep one"):
        refuse(Project())
