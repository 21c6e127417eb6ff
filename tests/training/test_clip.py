"""Training of the small CLIP."""

import json

import numpy as np
import pytest
import torch
from tests.training.tiny import assert_same

from farther_training import clip
from farther_training.clip import (
    ClipArchitecture,
    ClipJob,
    ClipRecipe,
    contrastive_loss,
    run_job,
    train,
    zero_shot,
)
from farther_training.clip_pictures import Captioned

SMALL = ClipArchitecture(
    image_size=32, width=4, embedding=8, text_width=8, text_layers=1, text_heads=2
)


def recipe(**params):
    """A short recipe."""
    defaults = {
        "pictures": 16,
        "epochs": 2,
        "batch_size": 8,
        "warmup_steps": 2,
        "precision": "float32",
        "seed": 3,
    }
    return ClipRecipe(**{**defaults, **params})


def discs(count, seed):
    """Pictures of two colours under two names."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(60, 110, (count, 32, 32, 3)).astype(np.uint8)
    concepts = []
    for row in range(count):
        channel = row % 2
        pixels[row, 6:26, 6:26, channel] = 240
        concepts.append((("zebra", "banana")[channel],))
    return Captioned(pixels, concepts, [""] * count)


def test_loss_of_two_pairs_is_the_one_worked_out_by_hand():
    # Cosines: 0.6 with the own caption, 0 with the other; scale 10.
    images = torch.eye(2)
    captions = 0.6 * torch.eye(2)
    same = torch.eye(2, dtype=torch.bool)
    loss = contrastive_loss(images, captions, torch.tensor(10.0), same)
    assert loss.item() == pytest.approx(np.log(1 + np.exp(-6)), abs=1e-6)


def test_equal_captions_are_not_told_apart():
    images = torch.eye(2)
    captions = torch.tensor([[0.7, 0.7], [0.7, 0.7]])
    same = torch.ones(2, 2, dtype=torch.bool)
    loss = contrastive_loss(images, captions, torch.tensor(10.0), same)
    assert loss.item() == pytest.approx(np.log(2), abs=1e-6)


@pytest.mark.slow
def test_it_learns_which_picture_goes_by_which_name(tmp_path):
    params = recipe(epochs=6, batch_size=16, learning_rate=0.01, average=0.5)
    files = (tmp_path / "state.pt", tmp_path / "log.csv", torch.device("cpu"))
    network = train(SMALL, params, discs(96, seed=0), discs(8, seed=1), *files)
    tokenize = clip.tokenizer(SMALL)
    with torch.inference_mode():
        prompts = tokenize(["a photo of a zebra", "a photo of a banana"])
        names = network.encode_text(prompts, normalize=True)
        pictures = clip.normalised(torch.from_numpy(discs(16, seed=2).pixels))
        nearest = (network.encode_image(pictures, normalize=True) @ names.T).argmax(dim=1)
    assert nearest.tolist() == [0, 1] * 8


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_weights(tmp_path, monkeypatch):
    pictures = discs(16, seed=0)
    validation = discs(4, seed=1)
    params = recipe(checkpoint_steps=1)
    device = torch.device("cpu")
    files = (tmp_path / "a.pt", tmp_path / "a.csv", device)
    expected = train(SMALL, params, pictures, validation, *files)
    original = clip.ClipRun.learn
    steps = []

    def killed(run, batch):
        if len(steps) == 3:
            raise KeyboardInterrupt
        steps.append(run.step)
        original(run, batch)

    monkeypatch.setattr(clip.ClipRun, "learn", killed)
    files = (tmp_path / "b.pt", tmp_path / "b.csv", device)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, params, pictures, validation, *files)
    monkeypatch.setattr(clip.ClipRun, "learn", original)
    resumed = train(SMALL, params, pictures, validation, *files)
    assert_same(resumed, expected)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_zero_shot_without_single_objects_is_unknown():
    network = clip.build(SMALL).eval()
    both = Captioned(np.zeros((1, 32, 32, 3), np.uint8), [("zebra", "banana")], [""])
    assert np.isnan(zero_shot(network, clip.tokenizer(SMALL), both))


def test_the_job_writes_a_folder_that_open_clip_loads(tmp_path):
    import open_clip

    folder = tmp_path / "clip"
    job = ClipJob(
        folder=folder,
        architecture=SMALL,
        recipe=recipe(epochs=1),
        validation_pictures=4,
        device="cpu",
    )
    card = run_job("clip", job, tmp_path / "artifacts")
    model = open_clip.create_model(f"local-dir:{folder}", require_pretrained=True)
    unread = open_clip.get_tokenizer(f"local-dir:{folder}")(["xylophone"])[0, 1]
    assert not model.token_embedding.weight[unread].any()
    assert model.token_embedding.weight[
        open_clip.get_tokenizer(f"local-dir:{folder}")(["zebra"])[0, 1]
    ].any()
    assert json.loads((folder / "card.json").read_text()) == card
    assert set(card["metrics"]) == {"val", "held_out"}
    assert "CC BY-SA 4.0" in (folder / "README.md").read_text()
    assert (tmp_path / "artifacts" / "train" / "clip" / "log.csv").is_file()
    assert not (tmp_path / "artifacts" / ".work" / "train" / "clip").exists()


def test_the_small_clip_of_the_demo_fits_six_megabytes():
    network = clip.build(ClipArchitecture())
    assert 2 * sum(p.numel() for p in network.parameters()) < 6_000_000
