"""The small CLIP: what it is shown, what it is told, and that it learns."""

import json

import numpy as np
import pytest
import torch
from tests.training.tiny import assert_same

from farther_training import clip, clip_pictures
from farther_training.clip import (
    ClipArchitecture,
    ClipJob,
    ClipRecipe,
    contrastive_loss,
    run_job,
    train,
    zero_shot,
)
from farther_training.clip_pictures import (
    Captioned,
    caption,
    compose,
    compose_held_out,
    sentences,
    vocabulary,
    words,
)

SMALL = ClipArchitecture(
    image_size=32, width=4, embedding=8, text_width=8, text_layers=1, text_heads=2
)


def recipe(**params):
    given = {
        "pictures": 16,
        "epochs": 2,
        "batch_size": 8,
        "warmup_steps": 2,
        "precision": "float32",
        "seed": 3,
    }
    return ClipRecipe(**{**given, **params})


def discs(count, seed):
    """Pictures of two colours under two names."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(60, 110, (count, 32, 32, 3)).astype(np.uint8)
    kinds = np.arange(count) % 2
    for row, kind in enumerate(kinds):
        pixels[row, 6:26, 6:26, kind] = 240
    return Captioned(pixels, [(("zebra", "banana")[kind],) for kind in kinds], [""] * count)


def test_loss_of_two_pairs_is_the_one_worked_out_by_hand():
    # cosines: 0.6 with the own caption, 0 with the other; scale 10
    seen, said = torch.eye(2), 0.6 * torch.eye(2)
    found = contrastive_loss(seen, said, torch.tensor(10.0), torch.eye(2, dtype=torch.bool))
    assert found.item() == pytest.approx(np.log(1 + np.exp(-6)), abs=1e-6)


def test_equal_captions_are_not_told_apart():
    seen = torch.eye(2)
    same = torch.ones(2, 2, dtype=torch.bool)
    equal = contrastive_loss(seen, torch.tensor([[0.7, 0.7], [0.7, 0.7]]), torch.tensor(10.0), same)
    assert equal.item() == pytest.approx(np.log(2), abs=1e-6)


def test_every_concept_goes_by_the_names_that_the_datasets_give_it():
    assert set(words()["sofa"].names) == {"sofa", "couch"}
    assert "furniture" in words()["sofa"].kinds
    assert "carnivore" in words()["fox"].kinds
    assert words()["spoon"].kinds == ("kitchen", "tableware")


def test_captions_name_what_is_shown_or_what_kind_of_thing_it_is():
    rng = np.random.default_rng(0)
    said = {caption(("zebra",), clip_pictures.STREET, rng) for _ in range(60)}
    assert {
        "a zebra on a street",
        "a photo of a zebra on a street",
        "a animal on a street",
        "a zebra, a animal on a street",
    } <= said
    assert caption((), "", rng).endswith("nothing")
    known = " ".join(sentences())
    assert all(word in known for one in said for word in one.split())


def test_the_words_that_fit_a_picture_are_names_kinds_and_the_table_that_it_is_said_to_be_on():
    shown = [("zebra",), ("zebra", "lantern"), ("apple",), ()]
    places = ["", clip_pictures.STREET, clip_pictures.ON_TABLE, ""]
    fitting = Captioned(np.zeros((4, 1, 1, 3), np.uint8), shown, places).fitting()
    found = [
        {word: float(row[k]) for k, word in enumerate(vocabulary()) if row[k]} for row in fitting
    ]
    assert found[0] == {"zebra": 0.5, "animal": 0.5}
    assert found[1] == {"zebra": 0.25, "animal": 0.25, "lantern": 0.5}
    assert found[2] == {"apple": 0.5, "food": 0.25, "diningtable": 0.25}
    assert found[3] == {}


def test_half_of_the_food_is_said_to_be_on_a_table_and_nothing_else_is():
    pictures = compose(40, 32, seed=9)
    kinds = [
        {kind for concept in shown for kind in words()[concept].kinds}
        for shown in pictures.concepts
    ]
    eaten = [bool({"food", "kitchen", "tableware"} & found) for found in kinds]
    on_table = [place == clip_pictures.ON_TABLE for place in pictures.places]
    assert 0 < sum(on_table) < sum(eaten)
    assert not any(placed and not dish for placed, dish in zip(on_table, eaten, strict=True))


def test_a_picture_depends_on_its_seed_and_number_alone():
    one, more = compose(4, 32, seed=1), compose(6, 32, seed=1)
    np.testing.assert_array_equal(one.pixels, more.pixels[:4])
    assert one.concepts == more.concepts[:4]
    assert not np.array_equal(one.pixels, compose(4, 32, seed=2).pixels)


def test_held_out_drawings_are_never_learned_from(monkeypatch):
    used = {"train": set(), "test": set()}
    for subset, draw in (
        ("train", clip_pictures._drawing),
        ("test", clip_pictures._held_out_drawing),
    ):

        def noted(rng, concept, subset=subset, draw=draw):
            drawing = draw(rng, concept)
            used[subset].add((concept, drawing.key))
            return drawing

        monkeypatch.setattr(clip_pictures, draw.__name__, noted)
    compose(12, 32, seed=5)
    held_out = compose_held_out(8, 32, seed=5)
    assert used["train"] and used["test"]
    assert not used["train"] & used["test"]
    assert {concept for shown in held_out.concepts for concept in shown} <= {
        concept for concept, _ in used["test"]
    }


def test_it_learns_which_picture_goes_by_which_name(tmp_path):
    given = recipe(epochs=6, batch_size=16, learning_rate=0.01, average=0.5)
    files = (tmp_path / "state.pt", tmp_path / "log.csv", torch.device("cpu"))
    network = train(SMALL, given, discs(96, seed=0), discs(8, seed=1), *files)
    tokenize = clip.tokenizer(SMALL)
    with torch.inference_mode():
        said = network.encode_text(
            tokenize(["a photo of a zebra", "a photo of a banana"]), normalize=True
        )
        pictures = clip.normalised(torch.from_numpy(discs(16, seed=2).pixels))
        nearest = (network.encode_image(pictures, normalize=True) @ said.T).argmax(dim=1)
    assert nearest.tolist() == [0, 1] * 8


def test_a_killed_run_ends_in_the_same_weights(tmp_path, monkeypatch):
    pictures, validation = discs(16, seed=0), discs(4, seed=1)
    given = recipe(checkpoint_steps=1)
    device = torch.device("cpu")
    whole = train(SMALL, given, pictures, validation, tmp_path / "a.pt", tmp_path / "a.csv", device)
    original, steps = clip.ClipRun.learn, []

    def killed(run, batch):
        if len(steps) == 3:
            raise KeyboardInterrupt
        steps.append(run.step)
        original(run, batch)

    monkeypatch.setattr(clip.ClipRun, "learn", killed)
    files = (tmp_path / "b.pt", tmp_path / "b.csv", device)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, given, pictures, validation, *files)
    monkeypatch.setattr(clip.ClipRun, "learn", original)
    resumed = train(SMALL, given, pictures, validation, *files)
    assert_same(whole, resumed)
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
