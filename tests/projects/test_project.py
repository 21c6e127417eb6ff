"""Files that `farther init` writes, and entries that it adds."""

import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from ruamel.yaml import YAML
from tests.detectors.test_torchvision_builders import hollow
from tests.projects.files import coco, picture, results
from tests.support.described import described, problems
from torchvision.models import alexnet
from transformers import (
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

from farther import datasets
from farther.command import main
from farther.curation import Rules
from farther.datasets import ClassNames
from farther.errors import DataError, ParameterError
from farther.projects import Lookup, RecognisedDetector, add, init, recognise
from farther.projects.entries import ProjectDetector
from farther.projects.project import _entry_macros, _IdSplits, _too_few
from farther.projects.recognise import Dataset
from farther.projects.yaml_text import inserted
from farther.tables import Header

ROOT = Path(__file__).parents[2]
NAMES = ClassNames(ROOT / "data/names/classes.yaml")


def test_images_without_labels_are_unlabelled_and_no_id_dataset(pets, tmp_path):
    picture(tmp_path / "photos/june/a.jpg")
    found = recognise(tmp_path / "photos")
    assert (found.entry["format"], found.images, found.unlabelled, found.categories) == (
        "images",
        1,
        1,
        [],
    )
    detector = results(tmp_path / "r.json", "cat")
    made = init(tmp_path / "made", pets, [tmp_path / "photos"], [detector], Lookup())
    assert any(
        "photos: 1 images without boxes, assumed to show no ID class" in line
        for line in made.assumed()
    )
    made.write()
    assert Rules(tmp_path / "made/data/benchmarks/pets.yaml").for_vocabulary("photos") == []
    with pytest.raises(
        DataError, match="images without boxes: the ID dataset needs boxes of the known classes"
    ):
        init(tmp_path / "other", tmp_path / "photos", [pets], [detector], Lookup())


def classifier(path: Path, count: int) -> Path:
    """A state dict of zeros of the classifier that is tried first; it names no classes."""
    with torch.device("meta"):
        network = alexnet(num_classes=count)
    torch.save(hollow(network), path)
    return path


def test_folders_of_classes_without_subsets_are_read_for_a_classifier(tmp_path):
    for name in ("id/cat/1", "id/dog/2", "id/dog/puppies/3", "ood/fox/1", "ood/owl/2", "loose/a"):
        picture(tmp_path / f"{name}.png")
    network = classifier(tmp_path / "net.pth", 2)
    ood = [tmp_path / "ood", tmp_path / "loose"]
    init(tmp_path / "made", tmp_path / "id", ood, [network], Lookup()).write()
    params = yaml.safe_load((tmp_path / "made/params.yaml").read_text())
    for name in ("id", "ood"):
        entry = params["datasets"][name]
        assert (entry["format"], entry["folders"]) == ("image_folder", {"all": "."})
        assert datasets.create(**entry).read("all").categories == sorted(
            path.name for path in (tmp_path / name).iterdir()
        )
    assert params["datasets"]["loose"]["format"] == "images"  # no folder of a class
    assert params["detectors"]["net"]["params"]["classes"] == ["cat", "dog"]
    picture(tmp_path / "more/elk/1.png")
    add(tmp_path / "made", [tmp_path / "more"], [], Lookup()).write()
    added = yaml.safe_load((tmp_path / "made/params.yaml").read_text())["datasets"]["more"]
    assert added["format"] == "image_folder"


def test_photographs_in_folders_are_no_classes_of_a_detector(tmp_path, pets):
    for name in ("june/1", "may/2"):
        picture(tmp_path / f"photos/{name}.png")
    detector = results(tmp_path / "r.json", "cat")
    with pytest.raises(
        DataError, match=r"images without boxes: .*for a classifier, one folder of images per class"
    ):
        init(tmp_path / "other", tmp_path / "photos", [pets], [detector], Lookup())
    init(tmp_path / "made", pets, [tmp_path / "photos"], [detector], Lookup()).write()
    assert (
        yaml.safe_load((tmp_path / "made/params.yaml").read_text())["datasets"]["photos"]["format"]
        == "images"
    )


def test_folders_with_images_at_two_depths_are_classes_if_a_detector_has_their_names(tmp_path):
    for name in ("cat/indoors/1", "dog/indoors/2", "dog/outdoors/3"):
        picture(tmp_path / f"id/{name}.png")
    picture(tmp_path / "ood/fox/1.png")
    labels = {0: "cat", 1: "dog"}
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = ViTConfig(
        **size, image_size=16, patch_size=8, id2label=labels, label2id={"cat": 0, "dog": 1}
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    init(
        tmp_path / "made", tmp_path / "id", [tmp_path / "ood"], [tmp_path / "vit"], Lookup()
    ).write()
    entry = yaml.safe_load((tmp_path / "made/params.yaml").read_text())["datasets"]["id"]
    assert entry["folders"] == {"all": "."}


def test_a_classifier_with_another_number_of_classes_than_folders_is_refused_with_both(tmp_path):
    for name in ("id/cat/1", "id/dog/2", "ood/fox/1"):
        picture(tmp_path / f"{name}.png")
    with pytest.raises(
        DataError, match=r"With its folders as classes: .*its 3 cannot be the 2 of the ID dataset"
    ):
        init(
            tmp_path / "made",
            tmp_path / "id",
            [tmp_path / "ood"],
            [classifier(tmp_path / "n.pth", 3)],
            Lookup(),
        )


def test_classes_of_the_detector_get_the_names_of_the_id_dataset(pets, tmp_path):
    for subset in ("train", "valid"):
        coco(pets / subset / "_annotations.coco.json", "a.jpg", ("tvmonitor", "aeroplane"))
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("Television", "zebra"))
    found = results(tmp_path / "r.json", "tv", "airplane")
    init(tmp_path / "made", pets, [tmp_path / "wild"], [found], Lookup(NAMES)).write()
    params = yaml.safe_load((tmp_path / "made/params.yaml").read_text())
    assert params["detectors"]["r"]["classes"] == {"airplane": "aeroplane", "tv": "tvmonitor"}
    rules = yaml.safe_load((tmp_path / "made/data/benchmarks/pets.yaml").read_text())
    assert rules["id_classes"]["tvmonitor"] == {"pets": ["tvmonitor"], "wild": ["Television"]}
    assert rules["protocols"]["paper"]["far"] == {"wild": ["zebra"]}
    half = {"of": "val", "part": 0.5}
    assert "&id" not in (tmp_path / "made/params.yaml").read_text()  # no anchors of YAML
    assert params["benchmarks"]["pets"]["subsets"] == {"train": "train", "val": half, "test": half}


def test_a_dataset_of_one_subset_with_annotations_in_two_formats(tmp_path):
    for name in ("pets", "wild"):
        picture(tmp_path / name / "a.jpg")
    for name in ("v1", "v2"):
        coco(tmp_path / f"pets/{name}.json", "a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("zebra",))
    found = results(tmp_path / "r.json", "cat", "dog")
    made = init(tmp_path / "made", tmp_path / "pets", [tmp_path / "wild"], [found], Lookup())
    assert any(
        "pets: v2 has the same images as v1 and is ignored" in line for line in made.assumed()
    )
    made.write()
    file = tmp_path / "made/params.yaml"
    params = yaml.safe_load(file.read_text())
    parts = {"train": 0.6, "val": 0.2, "test": 0.2}
    subsets = {name: {"of": "v1", "part": part} for name, part in parts.items()}
    assert params["benchmarks"]["pets"]["subsets"] == subsets
    assert any(
        "v1 is divided at random, the same each time: train 60%" in line for line in made.assumed()
    )


def test_near_categories_are_proposed_in_comments_that_become_rules_when_moved(pets, tmp_path):
    picture(tmp_path / "wild/a.jpg")
    coco(
        tmp_path / "wild/all.json", "a.jpg", ("elephant", "zebra", "Cat", "guitar", "pizza", "bus")
    )
    found, clip = results(tmp_path / "r.json", "cat", "dog"), f"local-dir:{ROOT / 'data/demo/clip'}"
    made = init(
        tmp_path / "made", pets, [tmp_path / "wild"], [found], Lookup.open(ROOT / "data", clip=clip)
    )
    made.write()
    lines = made.assumed()
    file = tmp_path / "made/data/benchmarks/pets.yaml"
    text = file.read_text()
    before = Rules(file)
    assert {str(rule) for rule in before.for_vocabulary("wild")} == {"ID class: Cat → cat"}
    proposed = re.findall(r"^      # proposed (wild: .*)$", text, re.MULTILINE)
    values = re.findall(r"^      #   (\w+): (cat|dog), CLIP (0\.\d\d)$", text, re.MULTILINE)
    assert proposed and values
    listed = [
        re.findall(r"CLIP (0\.\d\d)$", part, re.MULTILINE) for part in text.split("    near:")
    ]
    assert listed == [sorted(part, reverse=True) for part in listed]
    for line in proposed:
        text = text.replace(f"wild: {{}}\n      # proposed {line}", line)
    file.write_text(text)
    named = {
        rule.category: rule.id_class
        for rule in Rules(file).for_vocabulary("wild")
        if rule.kind != "ID class"
    }
    assert named == {name: id_class for name, id_class, _ in values}
    assert any("may contain or be" in line or "may be near to" in line for line in lines)
    params = (tmp_path / "made/params.yaml").read_text()
    if "be near to" in " ".join(lines):
        assert "      # wild_near: {dataset: wild, subset: all, distance: near}" in params


def test_parameters_that_are_there_are_kept(pets, tmp_path):
    (tmp_path / "params.yaml").write_text("mine: 1\n")
    found = results(tmp_path / "r.json", "cat")
    with pytest.raises(
        ParameterError,
        match=r"params\.yaml already exists: --add adds a detector or an OOD dataset",
    ):
        init(tmp_path, pets, [pets], [found], Lookup())
    assert (tmp_path / "params.yaml").read_text() == "mine: 1\n"


@pytest.mark.parametrize("stopped", ["begin", "write_pipeline", "ProjectFiles.write"])
def test_a_project_that_was_stopped_is_begun_again_by_the_same_command(
    pets, tmp_path, stopped, monkeypatch
):
    """As if it had not been stopped: without parameters of CLIP."""
    target = {
        "begin": "farther.command.init.begin",
        "write_pipeline": "farther.command.init.write_pipeline",
        "ProjectFiles.write": "farther.projects.ProjectFiles.write",
    }[stopped]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    found = results(tmp_path / "r.json", "cat")
    made = tmp_path / "made"
    command = ["init", str(made), "--id", str(pets), "--ood", str(pets), "--detector", str(found)]
    with monkeypatch.context() as patch:
        patch.setattr(target, stop)
        assert main(command) == 130
    assert main(command) == 0
    params = yaml.safe_load((made / "params.yaml").read_text())
    assert "embed" not in params
    assert (made / "dvc.yaml").is_file() and (made / ".dvc/config").is_file()


def test_the_command_says_what_is_not_given(capsys):
    assert main(["init", "--id", "x"]) == 2
    assert capsys.readouterr().err == "farther init: give --ood, --detector\n"


def test_links_that_form_a_loop_are_named(pets, tmp_path):
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    with pytest.raises(DataError, match=r"[ab]\.json: "):
        init(tmp_path / "made", pets, [pets], [tmp_path / "a.json"], Lookup())
    assert not (tmp_path / "made/params.yaml").exists()


@pytest.fixture
def project(pets, tmp_path) -> Path:
    """A project of pets and wild animals."""
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("zebra",))
    found = results(tmp_path / "r.json", "cat", "dog")
    init(tmp_path / "made", pets, [tmp_path / "wild"], [found], Lookup()).write()
    return tmp_path / "made"


def edited(file: Path) -> str:
    """The file after a person wrote into it: comments, other indentation, a quoted name."""
    text = (
        file.read_text()
        .replace("\ninference:", "\n# mine: slow machine\ninference:")
        .replace("keep: 0.95", "keep: 0.9")
    )
    file.write_text(text)
    return text


def test_a_detector_and_a_dataset_are_added_and_every_other_line_stays(project, tmp_path):
    for file in ("params.yaml", "data/benchmarks/pets.yaml"):
        edited(project / file)
    before = {
        file: (project / file).read_text().splitlines()
        for file in ("params.yaml", "data/benchmarks/pets.yaml")
    }
    picture(tmp_path / "street/a.jpg")
    coco(tmp_path / "street/all.json", "a.jpg", ("Cats", "bus", "doge"))
    (tmp_path / "other").mkdir()
    found = results(tmp_path / "other/r.json", "dog")
    add(project, [tmp_path / "street"], [found], Lookup()).write()
    params = yaml.safe_load((project / "params.yaml").read_text())
    assert list(params["detectors"]) == ["r", "other_r"]
    assert params["detectors"]["other_r"]["params"]["classes"] == ["cat", "dog"]
    assert params["benchmarks"]["pets"]["splits"]["street"] == {
        "dataset": "street",
        "subset": "all",
        "distance": "farther",
    }
    rules = Rules(project / "data/benchmarks/pets.yaml")
    assert {str(rule) for rule in rules.for_vocabulary("street")} == {"ID class: Cats → cat"}
    for file, lines in before.items():
        after = (project / file).read_text().splitlines()
        changed = [line for line in lines if line not in after]
        assert changed == ([] if file == "params.yaml" else ["  cat: {pets: [cat]}"])
    assert (
        "      # doge: is it dog? similar spelling"
        in (project / "data/benchmarks/pets.yaml").read_text()
    )


def test_a_detector_with_other_classes_is_not_added(project, tmp_path):
    before = (project / "params.yaml").read_text()
    with pytest.raises(
        ParameterError,
        match="1 of the detector's 3 classes are not ID classes of the benchmark: zebra",
    ):
        add(project, [], [results(tmp_path / "z.json", "zebra", "cat")], Lookup())
    assert (project / "params.yaml").read_text() == before
    with pytest.raises(ParameterError, match="unknown benchmark 'birds'"):
        add(project, [], [results(tmp_path / "y.json", "cat")], Lookup(), benchmark="birds")


def test_each_assumption_has_the_line_that_it_is_about(project, pets, tmp_path):
    made = init(tmp_path / "again", pets, [tmp_path / "wild"], [tmp_path / "r.json"], Lookup())
    for line in made.assumed():
        file, _, number = line.split()[0].partition(":")
        text = made.texts[file].splitlines()[int(number) - 1]
        said = line.split(maxsplit=1)[1]
        assert text.split(":")[0].strip() in said or text.lstrip().startswith(
            ("subsets:", "deploy:")
        )


def test_several_detectors_share_the_classes_of_all(pets, tmp_path):
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/all.json", "a.jpg", ("zebra", "owl"))
    files = [
        results(tmp_path / "a.json", "cat", "zebra"),
        results(tmp_path / "b.json", "dog", "cat"),
    ]
    init(tmp_path / "made", pets, [tmp_path / "wild"], files, Lookup()).write()
    assert list(yaml.safe_load((tmp_path / "made/params.yaml").read_text())["detectors"]) == [
        "a",
        "b",
    ]
    rules = Rules(tmp_path / "made/data/benchmarks/pets.yaml")
    assert rules.id_classes == ("cat", "dog", "zebra")
    assert {str(rule) for rule in rules.for_vocabulary("wild")} == {"ID class: zebra → zebra"}


def test_a_dry_run_writes_nothing(project, pets, tmp_path, capsys):
    arguments = [
        "--id",
        str(pets),
        "--ood",
        str(tmp_path / "wild"),
        "--detector",
        str(tmp_path / "r.json"),
    ]
    assert main(["init", str(tmp_path / "dry"), "--dry-run", *arguments]) == 0
    assert not (tmp_path / "dry").exists()
    printed = capsys.readouterr()
    assert printed.out.startswith(f"would write {tmp_path / 'dry/params.yaml'}")
    assert len(printed.out.splitlines()) <= 12
    assert printed.err == "Next: the same command without --dry-run\n"


def test_a_new_project_has_only_methods_that_apply_to_its_detectors(pets, tmp_path):
    """Detections of other programs, with scores alone: nothing that reads logits or features."""
    init(tmp_path / "made", pets, [], [results(tmp_path / "r.json", "cat")], Lookup()).write()
    params = yaml.safe_load((tmp_path / "made/params.yaml").read_text())
    assert list(params["methods"]) == ["confidence"]


def test_paths_in_the_project_are_relative_and_others_absolute(pets, tmp_path):
    made = tmp_path / "made"
    shutil.copytree(pets, made / "data/pets")
    detector = results(tmp_path / "r.json", "cat")
    init(made, made / "data/pets", [pets], [detector], Lookup()).write()
    params = yaml.safe_load((made / "params.yaml").read_text())
    roots = [entry["root"] for entry in params["datasets"].values()]
    assert roots == ["data/pets", str(pets)]
    weights = [entry["weights"] for entry in params["detectors"].values()]
    assert weights == [str(detector)]


def test_dvc_may_rewrite_the_parameters(project, pets, tmp_path):
    """Names with blanks, in a mapping longer than a line."""
    long = {f"detected thing {n} of many": f"annotated thing {n} of many" for n in range(9)}
    (tmp_path / "again").mkdir()
    text = (project / "params.yaml").read_text()
    run = ProjectDetector(
        "x",
        tmp_path / "x.pt",
        RecognisedDetector({"adapter": "yolo"}, Header(classes=("a",))),
        long,
    )
    entry = _entry_macros().detector(run, "pets").splitlines()
    (tmp_path / "again/params.yaml").write_text(inserted(text, ["detectors"], entry))
    rewriting = YAML()  # as DVC does for `--set-param`
    params = rewriting.load(tmp_path / "again/params.yaml")
    params["evaluate"]["replicates"] = 100
    rewriting.dump(params, tmp_path / "again/params.yaml")
    read = yaml.safe_load((tmp_path / "again/params.yaml").read_text())
    assert read["detectors"]["x"]["classes"] == long
    assert read["evaluate"]["replicates"] == 100


def test_keys_of_a_new_project_are_described_and_its_comments_name_commands(pets, tmp_path, capsys):
    detector = results(tmp_path / "r.json", "cat")
    init(tmp_path / "made", pets, [], [detector], Lookup()).write()
    text = (tmp_path / "made/params.yaml").read_text()
    params = yaml.safe_load(text)
    assert problems(params) == {}
    assert set(params) <= set(described())

    for file in (tmp_path / "made").rglob("*.yaml"):
        assert "docs/" not in file.read_text()
    commands = re.findall(r"`farther (list [a-z]+)", text)
    assert {"list params", "list datasets", "list detectors", "list methods"} <= set(commands)
    for command in commands:
        assert main(command.split()) == 0
    capsys.readouterr()


@pytest.mark.parametrize(("images", "said"), [(100, True), (300, False)])
def test_validation_images_that_are_too_few_for_the_limit_are_named(tmp_path, images, said):
    dataset = Dataset({"format": "images"}, ["all"], [], counts={"all": images})
    (text,) = _too_few(_IdSplits(dataset, {"val": {"of": "all", "part": 0.2}})) or ("",)
    assert text == said * (
        "20 ID validation images cannot show a limit of 0.05: 59 are needed; 0.14 is the smallest "
        "that they can show"
    )
