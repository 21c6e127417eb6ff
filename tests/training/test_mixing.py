"""Mixup and CutMix."""

import numpy as np
import torch
from scipy.special import log_softmax
from tests.training.tiny import classifier_job, log_rows, task

from farther_training.mixing import CutMix, Mixup
from farther_training.trainers import classifier


def test_mixup_mixes_labels_as_it_mixes_images():
    torch.manual_seed(0)
    values = torch.tensor([0.0, 1.0, 5.0])
    images = values[:, None, None, None].expand(3, 3, 4, 4).clone()
    mixed, labels = Mixup(alpha=1.0).mix(images, torch.tensor([0, 1, 2]), 3)
    # Image 1 has the value 1, and image 0, its partner, the value 0.
    share = mixed[1, 0, 0, 0].item()
    assert 0 < share < 1
    expected = [[share, 0, 1 - share], [1 - share, share, 0], [0, 1 - share, share]]
    torch.testing.assert_close(labels, torch.tensor(expected))
    torch.testing.assert_close(mixed, (labels @ values)[:, None, None, None].expand_as(mixed))


def test_the_loss_of_mixed_labels_is_the_mixture_of_their_losses(monkeypatch, samples, tmp_path):
    logits_by_step = []
    cross_entropy = classifier.cross_entropy

    def mix(self, images, labels, classes):
        return images, torch.tensor([[0.3, 0.7]] * 4)

    def recorded_cross_entropy(logits, targets):
        logits_by_step.append(logits.detach())
        return cross_entropy(logits, targets)

    monkeypatch.setattr(Mixup, "mix", mix)
    monkeypatch.setattr(classifier, "cross_entropy", recorded_cross_entropy)
    classifier_job(tmp_path, mixup=Mixup()).learn(task(tmp_path, samples))
    losses = -log_softmax(np.concatenate(logits_by_step), axis=1)
    expected = (0.3 * losses[:, 0] + 0.7 * losses[:, 1]).reshape(2, -1).mean(axis=1)
    logged = [float(row["loss_classifier"]) for row in log_rows(tmp_path)]
    np.testing.assert_allclose(logged, expected, rtol=1e-4)


def test_cutmix_labels_are_shares_of_the_image():
    torch.manual_seed(3)
    images = torch.tensor([0.0, 1.0])[:, None, None, None].expand(2, 3, 8, 8).clone()
    mixed, labels = CutMix().mix(images, torch.tensor([0, 1]), 2)
    share = mixed[0].mean().item()
    assert 0 < share < 1
    torch.testing.assert_close(labels, torch.tensor([[1 - share, share], [share, 1 - share]]))


def test_cutmix_of_probability_zero_changes_nothing():
    images = torch.rand(2, 3, 8, 8)
    mixed, labels = CutMix(probability=0).mix(images, torch.tensor([1, 0]), 2)
    assert torch.equal(mixed, images)
    assert labels.tolist() == [[0, 1], [1, 0]]
