"""Training of classifiers for OOD detection: virtual outliers, checkpoints, refused recipes."""

import numpy as np
import pytest
import torch
from tests.training.tiny import classifier_job, task

from farther import methods
from farther.detectors.classifier import Classifier
from farther.detectors.networks.heads import EnergyHead
from farther.errors import ParameterError
from farther.naming.registry import build
from farther_training.confidence_branch import ConfidenceBranch
from farther_training.g_odin import GOdin
from farther_training.mixing import CutMix, Mixup
from farther_training.recipe import ClassifierRecipe, ImageVirtualOutliers
from farther_training.run import TrainingError
from farther_training.trainers import classifier
from farther_training.trainers.classifier import ClassifierJob
from farther_training.virtual_outliers import OutlierQueue, outlier_loss

SIMILARITIES = ("inner", "euclidean", "cosine")


def test_virtual_outliers_of_images_cost_the_logistic_loss_of_their_energy():
    torch.manual_seed(1)
    queue = OutlierQueue(ImageVirtualOutliers(queue=10, candidates=20, kept=2, weight=0.1), 2, 3)
    queue.push(torch.randn(10, 3), torch.zeros(10).long())
    last, head, logits = (
        torch.nn.Linear(3, 2),
        EnergyHead(2),
        torch.tensor([[2.0, -1.0], [0.5, 0.5]]),
    )
    torch.manual_seed(2)
    virtual = last(queue.outliers()).detach().numpy()
    torch.manual_seed(2)
    found = outlier_loss(queue, head, last, logits)
    costs = []
    for row, sign in [*((v, -1) for v in virtual), *((v, 1) for v in logits.numpy())]:
        energy = np.log(np.exp(row).sum())
        costs.append(np.log1p(np.exp(-sign * 0.2 * energy)))  # the odds are 0.1 E − (−0.1 E)
    assert found.item() == pytest.approx(0.1 * np.mean(costs), rel=1e-5)


def test_a_queue_that_no_class_fills_is_an_error(tmp_path, samples):
    with pytest.raises(
        TrainingError, match="no class ever filled its queue of 500 features: at most 8 were seen"
    ):
        classifier_job(tmp_path, virtual_outliers=ImageVirtualOutliers(queue=500)).learn(
            task(tmp_path, samples)
        )


TRAININGS = {
    "mixup": ({"mixup": Mixup()}, {"msp": {}}),
    "cutmix": ({"cutmix": CutMix()}, {"msp": {}}),
    "confidence_branch": (
        {"confidence_branch": ConfidenceBranch()},
        {"msp": {}, "conf_branch": {}},
    ),
    "virtual_outliers": (
        {"virtual_outliers": ImageVirtualOutliers(queue=3, candidates=20, start=0.5)},
        {"vos": {"output": "logistic"}},
    ),
} | {
    similarity: (
        {"g_odin": GOdin(similarity=similarity)},
        {
            "g_odin": {},
            "denominator": {"output": "denominator"},
            "published": {"protocol": "published-code"},
        },
    )
    for similarity in SIMILARITIES
}


@pytest.mark.parametrize("name", sorted(TRAININGS))
def test_each_training_ends_in_a_checkpoint_whose_method_scores(name, tmp_path, samples):
    recipe, scores = TRAININGS[name]
    learner = classifier_job(tmp_path, **recipe)
    trained = learner.learn(task(tmp_path, samples))
    assert trained.kind.endswith(f"trained with {classifier.TITLES[next(iter(recipe))]}")
    assert 0 <= trained.evaluate(samples)["accuracy"] <= 1
    detector = Classifier(weights=learner.weights, device="cpu")
    regions = detector.detect([samples.pixels(row) for row in range(4)])
    for entry, params in scores.items():
        method = entry if entry in methods.names() else "g_odin"
        found = methods.create(method, **params).fit(regions).score(regions)
        assert np.isfinite(found).all() and len(found) == 4


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"mixup": {"alpha": 0}}, r"'mixup.alpha'.*greater than 0, found 0"),
        ({"cutmix": {"alpha": -1}}, r"'cutmix.alpha'.*greater than 0, found -1"),
        (
            {"g_odin": {"similarity": "manhattan"}},
            r"'g_odin.similarity'.*'inner', 'euclidean' or 'cosine'",
        ),
        ({"g_odin": {}, "batch_size": 1}, "batch_size is at least 2"),
        ({"confidence_branch": {"budget": 0}}, r"'confidence_branch.budget'.*greater than 0"),
        ({"mixup": {}, "cutmix": {}}, "mixup and cutmix exclude each other: give one"),
        ({"logit_norm": {}, "g_odin": {}}, "logit_norm and g_odin exclude each other"),
        ({"pixmix": {}}, r"'pixmix.folder'"),
        (
            {"pixmix": {"folder": "x", "severity": 11}},
            r"'pixmix.severity'.*less than or equal to 10, found 11",
        ),
    ],
)
def test_bad_parameters_get_one_message(entry, message):
    with pytest.raises(ParameterError, match=message) as refused:
        build(ClassifierRecipe, "recipe", entry)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["confidence_branch", "g_odin", "virtual_outliers"])
def test_a_head_of_its_own_needs_a_resnet(name, tmp_path):
    weights = tmp_path / "net.safetensors"
    job_of_lenet = {
        "dataset": "drawings",
        "weights": weights,
        "architecture": "LeNet",
        "image_size": 28,
    }
    with pytest.raises(
        ParameterError, match=f"{name} needs architecture: openood_resnet, found LeNet"
    ):
        build(ClassifierJob, "train.net", {**job_of_lenet, "recipe": {name: {}}})
