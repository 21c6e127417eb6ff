"""Passes over the crops of stored regions, beside open_clip's own computation."""

import json

import numpy as np
import open_clip
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from safetensors.torch import save_file
from scipy.special import softmax
from tests.detectors.test_open_clip_classifier import TEXT, VISIONS
from tests.images.speckles import SMALL, Speckles, content

from farther import detectors, methods
from farther.detectors.imported import import_splits
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.split_inference import infer_splits
from farther.errors import DataError, ParameterError
from farther.images.clip import Encoder, EncoderParams
from farther.images.clip_patches import Patches
from farther.tables import Header, Images, Regions

CLASSES = ("cat", "dog")
#: Image, class, box (x, y, width, height) and score of each detection; image 2 has none.
FOUND = [
    (0, "dog", (10, 5, 20, 10), 0.9),
    (0, "cat", (-4, 30, 30, 40), 0.8),
    (1, "cat", (0, 0, 40, 60), 0.3),
    (3, "dog", (12.5, 7.5, 0, 0), 0.7),
    (4, "dog", (3, 8, 30, 40), 0.6),
    (5, "cat", (20, 20, 10, 10), 0.2),
]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A folder that open_clip loads, untrained."""
    made = tmp_path_factory.mktemp("clip")
    model = {"embed_dim": 8, "vision_cfg": VISIONS["resnet"], "text_cfg": TEXT}
    config = {"model_cfg": model, "preprocess_cfg": {"interpolation": "bicubic"}}
    (made / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    save_file(open_clip.CLIP(**model).state_dict(), made / "open_clip_model.safetensors")
    return made


@pytest.fixture
def world(tmp_path, clip):
    """Imported detections; `crops(**params)` runs the pass and returns its log."""

    class World:
        root, splits, own, out = (
            tmp_path / name for name in ("images", "splits", "regions", "passes")
        )
        names = None

        def crops(self, params=SMALL, **entry):
            lines = []
            encoder = {"model": f"local-dir:{clip}", "device": "cpu"}
            passes = read_passes("run", {"crop": {"kind": "crops", **entry}}, encoder)
            places = (self.splits, {"drawn": self.root}, self.own, self.out, tmp_path / "work")
            infer_passes(
                self.adapter,
                passes,
                *places,
                params,
                classes=self.names,
                progress=False,
                log=lines.append,
            )
            return lines

        def regions(self):
            return Regions.read(self.out / "crop/test")

    made = World()
    made.root.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (6, 60, 40, 3), np.uint8)
    for row, image in enumerate(pixels):
        Image.fromarray(image).save(made.root / f"{row}.png")
    columns = {"file": [f"{row}.png" for row in range(6)], "width": [40] * 6, "height": [60] * 6}
    images = Images(
        image_id=[f"image {row}" for row in range(6)],
        dataset=["drawn"] * 6,
        digest=["-"] * 6,
        **columns,
    )
    images.write(made.splits / "test/images.parquet")
    results = [
        {"image_id": f"image {i}", "category_id": c, "bbox": box, "score": s}
        for i, c, box, s in FOUND
    ]
    (tmp_path / "found.json").write_text(json.dumps(results))
    made.adapter = detectors.create(
        "coco_results", weights=tmp_path / "found.json", classes=CLASSES
    )
    import_splits(
        made.adapter,
        made.splits,
        made.own,
        tmp_path / "own",
        SMALL.shard_images,
        log=lambda _: None,
    )
    made.pixels, made.clip = pixels, clip
    return made


def cropped(world, image: int, *place: int) -> Image.Image:
    return Image.fromarray(world.pixels[image]).crop(place)


def test_a_plain_json_of_boxes_gets_the_embeddings_and_logits_of_open_clip(world, clip):
    templates = ("a photo of a {}", "a drawing of the {}.")
    assert world.crops(margin=0.1, template=templates, unknown=["cloud"]) == [
        "crop/test: 6 regions"
    ]
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{clip}")
    columns = open_clip.build_zero_shot_classifier(
        model.eval(), open_clip.get_tokenizer(f"local-dir:{clip}"), [*CLASSES, "cloud"], templates
    )
    crops = [
        cropped(
            world, 0, 8, 4, 32, 16
        ),  # 2 pixels more to the left and right, 1 more above and below
        cropped(world, 0, 0, 26, 29, 60),  # ends at the image's border
        cropped(world, 1, 0, 0, 40, 60),
        cropped(world, 3, 12, 7, 13, 8),  # an empty box: one pixel
        cropped(world, 4, 0, 4, 36, 52),
        cropped(world, 5, 19, 19, 31, 31),
    ]
    with torch.inference_mode():
        expected = model.encode_image(
            torch.stack([transform(crop) for crop in crops]), normalize=True
        )
        logits = model.logit_scale.exp() * expected @ columns
    crop_regions, run = world.regions(), Regions.read(world.own / "test")
    assert_allclose(crop_regions.features, expected, atol=1e-5)
    assert_allclose(crop_regions.logits, logits, atol=1e-4)
    assert_allclose(
        crop_regions.features @ crop_regions.weight.T + crop_regions.bias,
        crop_regions.logits,
        atol=1e-4,
    )
    for name in ("image_id", "region_id", "box", "score", "label"):
        assert_array_equal(getattr(crop_regions, name), getattr(run, name))
    assert (crop_regions.classes, crop_regions.header.unknown_columns) == (
        (*CLASSES, "cloud"),
        (2,),
    )


def test_the_best_patch_of_a_crop_is_kept_for_gl_mcm(world):
    world.crops(patches=True, unknown=["cloud"])
    crop_regions = world.regions()
    text, clip = (
        crop_regions.weight[:2],
        Encoder(EncoderParams(model=f"local-dir:{world.clip}", device="cpu")),
    )
    crop = cropped(world, 1, 0, 0, 40, 60)
    patches = Patches(clip.network.visual)
    with torch.inference_mode(), patches.recording():
        clip.network.encode_image(clip.preprocessing.prepare(np.asarray(crop))[None])
        (each,) = torch.nn.functional.normalize(patches.embeddings(), dim=-1).numpy()
    probability = softmax(
        each @ (text / np.linalg.norm(text, axis=1, keepdims=True)).T, axis=1
    ).max(axis=1)
    assert_allclose(crop_regions.array("latent.patch")[2], each[probability.argmax()], atol=1e-5)
    mcm, both = (methods.create(name).score(crop_regions) for name in ("mcm", "gl_mcm"))
    assert_allclose((both - mcm)[2], probability.max(), atol=1e-6)


def test_only_what_changed_runs_again(world, tmp_path):
    prompts = tmp_path / "unknown.txt"
    prompts.write_text("cloud\n")
    given = {"margin": 0.1, "unknown": str(prompts)}
    world.crops(**given)
    assert world.crops(**given) == ["crop/test: unchanged"]
    prompts.write_text("cloud\ntree\n")
    assert world.crops(**given) == ["crop/test: 6 regions"]
    assert world.regions().classes == (*CLASSES, "cloud", "tree")
    assert world.crops(**{**given, "margin": 0.2}) == ["crop/test: 6 regions"]


def test_a_killed_pass_resumes_and_ends_in_the_same_bytes(world, monkeypatch):
    world.crops()
    whole, pixels, seen = content(world.out), Encoder.pixels, []

    def dies(self, *values):
        seen.append(1)
        if len(seen) == 3:  # in the second shard
            raise KeyboardInterrupt
        return pixels(self, *values)

    infer_passes(
        world.adapter, {}, world.splits, {}, world.own, world.out, world.out.parent / "work", SMALL
    )
    monkeypatch.setattr(Encoder, "pixels", dies)
    with pytest.raises(KeyboardInterrupt):
        world.crops()
    seen.clear()
    world.crops()
    assert len(seen) == 1
    assert content(world.out) == whole


def test_weak_detections_have_the_embedding_of_the_whole_image(world):
    world.crops(min_score=0.5)
    crop_regions = world.regions()
    world.crops()
    everywhere = world.regions()  # the box of the third is the whole image
    assert_allclose(crop_regions.features[:5], everywhere.features[:5], atol=1e-6)
    assert np.abs(crop_regions.features[5] - everywhere.features[5]).max() > 1e-3


@pytest.mark.parametrize(
    ("entry", "box", "expected"),
    [
        ({}, (2.4, 3.0, 8.1, 9.0), (2, 3, 9, 9)),
        ({"margin": 0.5}, (20, 20, 30, 40), (15, 10, 35, 50)),
        ({"square": True}, (20, 20, 30, 40), (15, 20, 35, 40)),
        ({}, (10, 0, 10, 64), (8, 0, 12, 64)),  # a sixteenth of the height
        ({}, (-30, -20, -10, -5), (0, 0, 1, 1)),  # outside of the image
        ({}, (99, 99, 120, 120), (99, 79, 100, 80)),
    ],
)
def test_a_crop_is_the_enlarged_box_within_the_image(entry, box, expected):
    crops = read_passes("run", {"crops": entry})["crops"]
    assert crops.bounds(np.array([box], np.float32), 100, 80).tolist() == [list(expected)]


def test_background_has_no_prompt_and_unknown_classes_of_the_run_stay_unknown(clip):
    crops = read_passes("run", {"crops": {"unknown": ["cloud"]}}, {"model": f"local-dir:{clip}"})[
        "crops"
    ]
    run = Header(
        classes=("cat", "background", "thing", "dog"), background_index=1, unknown_columns=(2,)
    )
    header = crops.header_of(run)
    assert header.classes == ("cat", "thing", "dog", "cloud")
    assert (header.background_index, header.unknown_columns) == (None, (1, 3))


def test_prompts_have_the_names_of_the_benchmark(world):
    world.names = {"cat": "tiger"}
    world.crops()
    assert world.regions().classes == ("tiger", "dog")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"margin": -0.1},
            "parameter 'margin': Input should be greater than or equal to 0, found -0.1",
        ),
        ({"template": "a photo"}, "parameter 'template"),
        ({"words": {"cow": "cattle"}}, "words: the run has no class 'cow'. Its classes: cat, dog"),
        (
            {"words": {"cat": "7"}},
            "the class '7' is not a word that CLIP knows: name it in `classes` of the run",
        ),
        ({"unknown": ["Dog"]}, "parameter 'unknown': the prompt 'Dog' is also the class 'dog'"),
        ({"encoder": {"model": "local-dir:nowhere"}}, "nowhere holds no open_clip_config.json"),
    ],
)
def test_wrong_parameters_are_refused_by_name(world, entry, message):
    with pytest.raises(ParameterError, match=message):
        world.crops(**entry)


def test_an_encoder_is_needed():
    crops = read_passes("run", {"crops": {}})["crops"]
    with pytest.raises(
        ParameterError, match="parameter 'encoder' is missing, and there is no section"
    ):
        crops.header_of(Header(classes=CLASSES))


def test_an_image_with_detections_that_cannot_be_read_ends_the_pass(world):
    (world.root / "4.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match="the image 'image 4' has detections, but cannot be read"):
        world.crops()


def test_crops_of_what_a_detector_finds_are_those_of_what_it_stored(world):
    splits = (world.splits, {"drawn": world.root}, world.own, world.root / "work")
    world.adapter = Speckles()
    infer_splits(world.adapter, *splits, SMALL, progress=False, log=lambda _: None)
    world.crops(margin=0.1)
    stored = world.regions()
    crops = read_passes("run", {"crops": {"margin": 0.1}}, {"model": f"local-dir:{world.clip}"})[
        "crops"
    ]
    prepared = [crops.prepare(world.adapter, image) for image in world.pixels]
    crop_regions = crops.forward(world.adapter, prepared, [f"image {row}" for row in range(6)])
    assert len(crop_regions) == len(stored) > 0
    assert_allclose(crop_regions.features, stored.features, atol=1e-6)
    assert_array_equal(crop_regions.label, stored.label)
