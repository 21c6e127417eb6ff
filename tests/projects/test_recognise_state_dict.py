"""State dicts of torchvision's detectors, as `farther init --detector` takes them."""

import pytest
import torch
from safetensors.torch import save_file
from tests.detectors.test_torchvision_builders import published_as, without_memory
from tests.detectors.torchvision_models import BUILT, of_classifier
from tests.projects.files import coco, picture
from tests.support.cases import slow_but
from torchvision import models

from farther.detectors.networks.torchvision_builders import BUILDERS
from farther.detectors.networks.torchvision_recognition import recognise_state_dict
from farther.errors import DataError
from farther.projects import recognise, recognise_detector

ADAPTERS = {
    "fasterrcnn": "faster_rcnn",
    "maskrcnn": "mask_rcnn",
    "keypointrcnn": "mask_rcnn",
    "retinanet": "retinanet",
    "fcos": "fcos",
    "ssd300": "ssd",
    "ssdlite320": "ssd",
}
#: One builder of each adapter.
TYPICAL = (
    "fasterrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn",
    "retinanet_resnet50_fpn",
    "fcos_resnet50_fpn",
    "ssd300_vgg16",
)
CLASSES = "names no classes: assumed to be the ID dataset's, in its order (farther doctor compares)"


@pytest.fixture
def pets(tmp_path):
    """An ID dataset of two classes."""
    root = tmp_path / "pets"
    picture(root / "train/a.jpg")
    coco(root / "train/_annotations.coco.json", "a.jpg")
    return recognise(root)


def saved(tmp_path, case, columns=3, name="model.pth", state=None):
    (tmp_path / "weights").mkdir(exist_ok=True)
    path = tmp_path / "weights" / name
    torch.save(without_memory(case, columns) if state is None else state, path)
    return path


@pytest.mark.parametrize("case", slow_but(TYPICAL, BUILT))
def test_each_builder_has_the_classes_of_the_id_dataset_if_their_number_fits(case, pets, tmp_path):
    found = recognise_state_dict(saved(tmp_path, case), pets)
    assert found.adapter == ADAPTERS[case.partition("_")[0].partition(" ")[0]]
    assert found.params["classes"] == ["cat", "dog"]
    assert CLASSES in found.assumed
    assert "norm_epsilon" not in found.params


@pytest.mark.parametrize(
    "case", slow_but(("fcos_resnet50_fpn",), ["retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn"])
)
def test_as_many_outputs_as_classes_are_classes_without_a_background_where_there_may_be_none(
    case, pets, tmp_path
):
    found = recognise_detector(saved(tmp_path, case, columns=2), pets)
    assert (found.header.classes, found.header.background_index) == (("cat", "dog"), None)
    assert found.assumed.endswith("; no output for the background")


@pytest.mark.parametrize(
    "case",
    slow_but(
        ("fasterrcnn_resnet50_fpn_v2", "fcos_resnet50_fpn"),
        [case for case in BUILT if "keypoint" not in case and "classifier" not in case],
    ),
)
def test_91_outputs_are_torchvisions_of_coco(case, pets, tmp_path):
    found = recognise_state_dict(saved(tmp_path, case, 91), pets)
    assert found.params["classes"] == list(BUILDERS[case].categories)
    assert "its 91 outputs are assumed to be torchvision's" in found.assumed


def test_weights_of_coco_are_opened_with_their_names(pets, tmp_path):
    found = recognise_detector(saved(tmp_path, "ssdlite320_mobilenet_v3_large", 91), pets)
    known = found.header.known_classes
    assert (len(known), known[16], known[17], known[11]) == (90, "cat", "dog", "N/A 12")
    assert found.header.classes[0] == "background"


def test_an_epsilon_that_the_file_does_not_say_is_assumed_aloud(pets, tmp_path):
    with torch.device("meta"):
        shapes = {
            name: tensor.shape
            for name, tensor in of_classifier("retinanet_resnet50_fpn", 91).state_dict().items()
        }
    frozen = {name: torch.zeros((), device="cpu").expand(shape) for name, shape in shapes.items()}
    found = recognise_state_dict(saved(tmp_path, "retinanet_resnet50_fpn", state=frozen), pets)
    assert found.params["norm_epsilon"] == 0.0
    assert "norm_epsilon 0, with which torchvision trained these" in found.assumed
    for name in frozen:
        if "cls_logits" in name:
            frozen[name] = frozen[name][:27]
    found = recognise_state_dict(saved(tmp_path, "retinanet_resnet50_fpn", state=frozen), pets)
    assert "norm_epsilon" not in found.params
    assert found.assumed.endswith(
        "norm_epsilon 1e-5 (write norm_epsilon: 0 if it began from torchvision's weights COCO_V1)"
    )


@pytest.mark.parametrize(("name", "size"), [("model.pth", "fpn"), ("mobile_320.pth", "320_fpn")])
def test_one_of_two_architectures_of_one_shape_is_assumed_aloud(name, size, pets, tmp_path):
    path = saved(tmp_path, "fasterrcnn_mobilenet_v3_large_fpn", name=name)
    found = recognise_detector(path, pets)
    assert found.entry["params"]["architecture"] == f"mobilenet_v3_large_{size}"
    message = (
        "mobilenet_v3_large_fpn and mobilenet_v3_large_320_fpn alike: "
        f"assumed mobilenet_v3_large_{size}; "
    )
    assert message in found.assumed


def test_a_file_that_torchvision_publishes_needs_no_assumption(monkeypatch, pets, tmp_path):
    path = saved(tmp_path, "fasterrcnn_mobilenet_v3_large_320_fpn", 91)
    published_as(monkeypatch, "fasterrcnn_mobilenet_v3_large_320_fpn", path)
    found = recognise_state_dict(path, pets)
    assert (found.adapter, found.assumed) == ("faster_rcnn", "")
    assert found.params == {"classes": list(BUILDERS["fasterrcnn_resnet50_fpn"].categories)}


def test_other_numbers_of_classes_are_refused_unless_names_lie_beside_the_file(pets, tmp_path):
    path = saved(tmp_path, "ssdlite320_mobilenet_v3_large", 5)
    message = (
        r"a state dict names no classes: it has 5 outputs, which are the background and 4 classes, "
        r"but the ID dataset has 2 classes; "
        r"write the names of its classes into classes\.txt beside the file"
    )
    with pytest.raises(DataError, match=message):
        recognise_detector(path, pets)
    beside = path.parent / "classes.txt"
    beside.write_text("__background__\ncat\ndog\nowl\n\n")
    with pytest.raises(
        DataError,
        match=r"classes\.txt.*: 3 names, but model\.pth has 5 outputs, which are the back",
    ):
        recognise_detector(path, pets)
    beside.write_text("__background__\ncat\ndog\nowl\nfox\n")
    found = recognise_detector(path, pets)
    assert (found.header.known_classes, found.assumed) == (("cat", "dog", "owl", "fox"), "")


def test_other_weights_are_refused_with_those_that_do_not_fit(pets, tmp_path):
    state = without_memory("fasterrcnn_resnet50_fpn", 3)
    state["backbone.body.layer1.0.conv1.weight"] = torch.zeros(8, 64, 1, 1)
    path = saved(tmp_path, "", state=state)
    with pytest.raises(
        DataError,
        match=r"closest is fasterrcnn_resnet50_fpn with 3 outputs\. of another shape: backb",
    ):
        recognise_detector(path, pets)


def test_a_state_dict_may_be_a_safetensors_file(pets, tmp_path):
    state = without_memory("fasterrcnn_mobilenet_v3_large_320_fpn", 3)
    path = tmp_path / "mobile.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    found = recognise_detector(path, pets)
    assert (found.entry["adapter"], found.header.known_classes) == ("faster_rcnn", ("cat", "dog"))


def test_of_networks_with_other_names_one_per_family_is_built_at_most(pets, tmp_path, monkeypatch):
    built: list[str] = []
    get_model = models.get_model

    def counted(architecture, **params):
        built.append(models.get_model_builder(architecture).__module__)
        return get_model(architecture, **params)

    monkeypatch.setattr(models, "get_model", counted)
    state = {f"block_{number}.weight": torch.zeros(2000, 1) for number in range(5000)}
    assert recognise_state_dict(saved(tmp_path, "other", state=state), pets) is None
    assert sorted(set(built)) == sorted(built)


@pytest.mark.parametrize(
    "architecture",
    slow_but(("resnet18", "mobilenet_v3_small"), ["vgg11_bn", "vit_b_16", "swin_t", "maxvit_t"]),
)
def test_each_classifier_is_recognised_by_its_weights(architecture, pets, tmp_path):
    state = models.get_model(architecture, weights=None, num_classes=2).state_dict()
    found = recognise_state_dict(saved(tmp_path, architecture, state=state), pets)
    assert (found.adapter, found.params["architecture"]) == ("classifier", architecture)
