"""The adapter of transformers' open-vocabulary detectors, compared with their own processors."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose, assert_array_equal
from tests.support.cases import slow_but
from torch import nn
from transformers import AutoConfig

from farther import detectors
from farther.detectors.open_vocabulary import CLASSES as NETWORKS
from farther.errors import DataError, ParameterError

CLASSES, UNKNOWN = ["cat", "red dog", "bird"], ["thing", "blue box"]
LETTERS = "abcdefghijklmnopqrstuvwxyz.,"

SWIN = {
    "model_type": "swin",
    "image_size": 64,
    "embed_dim": 8,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 1, 1, 1],
}
SWIN |= {"window_size": 4, "out_indices": [2, 3, 4]}
TEXT = {
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 16,
}
CLIP_TEXT = {**TEXT, "vocab_size": 2 * len(LETTERS) + 3, "eos_token_id": 2 * len(LETTERS) + 2}
DINO = {
    "backbone_config": SWIN,
    "text_config": {"model_type": "bert", "vocab_size": 1040, **TEXT},
    "num_queries": 20,
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 16 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
    "d_model": 32,
}
KINDS = {
    "owlv2": {
        "text_config": {**CLIP_TEXT, "max_position_embeddings": 32},
        "vision_config": {**TEXT, "hidden_size": 24, "image_size": 64, "patch_size": 16},
        "projection_dim": 16,
    },
    "grounding-dino": DINO,
    "mm-grounding-dino": DINO,
    "omdet-turbo": {
        "backbone_config": SWIN,
        "apply_layernorm_after_vision_backbone": False,
        "text_config": {
            "model_type": "clip_text_model",
            **CLIP_TEXT,
            "max_position_embeddings": 77,
        },
        "encoder_in_channels": [16, 32, 64],
        "vision_features_channels": [32, 32, 32],
        "text_projection_in_dim": 16,
        "text_projection_out_dim": 16,
        "class_embed_dim": 16,
        "num_queries": 20,
        **dict.fromkeys(
            ("encoder_dim_feedforward", "decoder_dim_feedforward", "task_encoder_hidden_dim"), 16
        ),
        **dict.fromkeys(("encoder_hidden_dim", "decoder_hidden_dim"), 32),
        **dict.fromkeys(("encoder_attention_heads", "decoder_num_heads", "decoder_num_layers"), 2),
    },
}
SIZES = {"shortest_edge": 64, "longest_edge": 96}
PROCESSORS = {
    "owlv2": {"image_processor_type": "Owlv2ImageProcessor", "size": {"height": 64, "width": 64}},
    "grounding-dino": {"image_processor_type": "GroundingDinoImageProcessor", "size": SIZES},
    "mm-grounding-dino": {"image_processor_type": "GroundingDinoImageProcessor", "size": SIZES},
    "omdet-turbo": {
        "image_processor_type": "DetrImageProcessor",
        "size": {"height": 64, "width": 64},
    },
}


def write_tokenizer(folder, kind):
    """A vocabulary of letters in CLIP's file format, or of words in BERT's, with special tokens."""
    if NETWORKS[kind][1] == "CLIPTokenizer":
        words = [
            "!",
            *LETTERS,
            *(f"{letter}</w>" for letter in LETTERS),
            "<|startoftext|>",
            "<|endoftext|>",
        ]
        (folder / "vocab.json").write_text(
            json.dumps({word: number for number, word in enumerate(words)})
        )
        (folder / "merges.txt").write_text("#version: 0.2\n")
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"pad_token": "!", "model_max_length": 32})
        )
        return
    special = {
        0: "[PAD]",
        100: "[UNK]",
        101: "[CLS]",
        102: "[SEP]",
        103: "[MASK]",
        1012: ".",
        1029: "?",
    }
    words = {
        1: "cat",
        2: "red",
        3: "dog",
        4: "bird",
        5: "thing",
        6: "blue",
        7: "##ber",
        8: "box",
        9: "a",
    }
    (folder / "vocab.txt").write_text(
        "".join(f"{(special | words).get(n, f'[unused{n}]')}\n" for n in range(1040))
    )


def write_folder(folder, kind):
    """A folder as on the hub, of a network whose scores and boxes differ between queries."""
    torch.manual_seed(3)
    network = getattr(transformers, NETWORKS[kind][0])(
        AutoConfig.for_model(kind, **KINDS[kind])
    ).eval()
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.3)
            nn.init.normal_(module.bias, std=0.3) if module.bias is not None else None
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif name.endswith("language_backbone"):
            nn.init.normal_(module.text_projection)
        elif kind.startswith("mm") and "class_embed" in name and hasattr(module, "bias"):
            nn.init.zeros_(module.bias)
    network.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[kind]))
    write_tokenizer(folder, kind)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = write_folder(tmp_path_factory.mktemp("open"), kind)
        return made[kind]

    return folder


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, size, dtype=np.uint8)
        for size in ((60, 80, 3), (90, 70, 3), (60, 80, 3))
    ]


def create(folder, **params):
    params = {
        "classes": CLASSES,
        "unknown": UNKNOWN,
        "score_threshold": 0.0,
        "max_detections": 1000,
        **params,
    }
    return detectors.create("open_vocabulary", weights=folder, device="cpu", **params)


def library_processor(folder, kind):
    image = getattr(transformers, PROCESSORS[kind]["image_processor_type"]).from_pretrained(folder)
    tokenizer = getattr(transformers, NETWORKS[kind][1]).from_pretrained(folder)
    name = {"owlv2": "Owlv2Processor", "omdet-turbo": "OmDetTurboProcessor"}.get(
        kind, "GroundingDinoProcessor"
    )
    return getattr(transformers, name)(image, tokenizer)


@torch.inference_mode()
def by_the_library(folder, kind, image, threshold):
    """The library's detections, sorted, by its own network, processor and post-processing."""
    network = getattr(transformers, NETWORKS[kind][0]).from_pretrained(folder).eval()
    processor, names = library_processor(folder, kind), [*CLASSES, *UNKNOWN]
    texts = [f"a photo of a {name}" for name in names] if kind == "owlv2" else names
    given = processor(images=[image], text=[texts], return_tensors="pt")
    output = network(**given)
    settings = {"threshold": threshold, "target_sizes": [image.shape[:2]]}
    if "dino" in kind:
        # Its score is the largest over all tokens, those that separate prompts included; ours is
        # over the prompts'.
        separators = torch.isin(given["input_ids"][0], torch.tensor([101, 102, 1012]))
        output.logits[..., : len(separators)][..., separators] = -100
        settings["text_threshold"] = 0.0
    (found,) = processor.post_process_grounded_object_detection(output, **settings)
    order = found["scores"].argsort(descending=True, stable=True)
    labels = None if "dino" in kind else found["labels"][order].numpy()
    return found["boxes"][order].numpy(), found["scores"][order].numpy(), labels, output


# MM Grounding DINO is Grounding DINO with another class head.
@pytest.mark.parametrize("kind", slow_but(set(KINDS) - {"mm-grounding-dino"}, sorted(KINDS)))
def test_boxes_scores_and_labels_are_those_of_transformers(kind, folders, images):
    detector = create(folders(kind), score_threshold=0.15)
    for image in images[:2]:
        boxes, scores, labels, output = by_the_library(folders(kind), kind, image, 0.15)
        regions = detector.detect(image)
        assert len(regions) == len(scores) > 1
        assert_allclose(regions.score, scores, atol=1e-6)
        assert_allclose(regions.box, boxes, atol=1e-4)
        assert_allclose(
            regions.score,
            1 / (1 + np.exp(-regions.logits[np.arange(len(regions)), regions.label])),
            1e-5,
        )
        if labels is not None:
            assert_array_equal(regions.label, labels)
        else:  # the word of the token with the largest logit belongs to the prompt
            best = output.logits[0].amax(-1).argsort(descending=True, stable=True)[: len(regions)]
            tokens = output.input_ids[0][output.logits[0, best].argmax(-1)].tolist()
            words = library_processor(folders(kind), kind).tokenizer.convert_ids_to_tokens(tokens)
            assert all(
                word in detector.prompts.columns[k]
                for word, k in zip(words, regions.label, strict=True)
            )


@pytest.mark.parametrize("kind", ["owlv2", "grounding-dino", "omdet-turbo"])
def test_an_image_has_the_same_detections_in_a_batch_and_after_pickling(kind, folders, images):
    detector = create(folders(kind))
    together = detector.detect(images, batch_size=3)
    copy = pickle.loads(pickle.dumps(detector))
    assert "network" not in vars(copy)
    for number, image in enumerate(images):
        alone = detector.forward([copy.prepare(image)], ["alone"])
        rows = together.image_id == str(number)
        assert_allclose(together.score[rows], alone.score, atol=5e-5)
        assert_allclose(together.features[rows], alone.features, atol=5e-3)


@pytest.mark.parametrize("kind", ["owlv2", "omdet-turbo", "omdet-turbo, dot"])
def test_text_embeddings_are_a_last_layer_whose_product_with_the_features_is_the_logits(
    kind, folders, images, tmp_path
):
    kind, _, distance = kind.partition(", ")
    folder = folders(kind)
    if distance:
        folder = shutil.copytree(folder, tmp_path / "dot")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "class_distance_type": distance}))
    regions = create(folder, template=["a {}", "one {} here"]).detect(images)
    assert regions.header.weight.shape == (5, regions.features.shape[1])
    assert_allclose(regions.features @ regions.header.weight.T, regions.logits, atol=1e-4)


def test_embeddings_of_several_templates_are_averaged(folders):
    weights = [
        create(folders("owlv2"), template=one).header().weight for one in ("a {}", "one {} here")
    ]
    mean = np.mean(weights, axis=0)[:, :-1]
    both = create(folders("owlv2"), template=["a {}", "one {} here"]).header().weight
    assert_allclose(both[:, :-1], mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-5)


def test_negative_prompts_are_unknown_columns_and_their_file_is_part_of_the_identity(
    folders, tmp_path
):
    file = tmp_path / "negatives.txt"
    file.write_text("thing\nblue box\n")
    header = create(folders("owlv2"), unknown=file).header()
    assert (header.known_classes, header.unknown_columns) == (tuple(CLASSES), (3, 4))
    assert header.classes[3:] == tuple(UNKNOWN)
    assert create(folders("owlv2")).identity == header.detector
    file.write_text("thing\nbox\n")
    assert create(folders("owlv2"), unknown=file).identity != header.detector


def test_grounding_dino_has_features_without_a_last_layer(folders, images):
    regions = create(folders("grounding-dino")).detect(images[0])
    assert regions.header.weight is None
    assert regions.features.shape == (20, 32)
    assert create(folders("grounding-dino")).only([]).detect(images[0]).features is None


@pytest.mark.parametrize("kind", ["owlv2", "grounding-dino"])
def test_precision_rounds_activations_only(kind, folders, images):
    exact, rounded = (
        create(folders(kind), precision=one).detect(images[0]) for one in ("float32", "bfloat16")
    )
    assert rounded.logits.dtype == exact.logits.dtype == np.float32
    assert 0 < np.abs(rounded.score[:3] - exact.score[:3]).max() < 0.2


def test_a_folder_as_recent_releases_save_it_gives_the_same(folders, images, tmp_path):
    folder = folders("owlv2")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, tmp_path)
    library_processor(folder, "owlv2").save_pretrained(tmp_path)
    assert {"processor_config.json", "tokenizer.json"} <= {file.name for file in tmp_path.iterdir()}
    assert not (tmp_path / "preprocessor_config.json").exists()
    expected, found = (create(one).detect(images[0]) for one in (folder, tmp_path))
    assert_array_equal(found.logits, expected.logits)


@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "vocab.json", "merges.txt", "preprocessor_config.json"],
)
def test_a_missing_file_is_named(name, folders, tmp_path):
    folder = shutil.copytree(folders("owlv2"), tmp_path / "folder")
    (folder / name).unlink()
    missing = "tokenizer.json" if name == "vocab.json" else name
    with pytest.raises(
        DataError, match=f"{missing}: the file does not exist: a model needs config.json"
    ):
        create(folder).header()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "config.json",
            {"model_type": "vit"},
            "'model_type': 'vit' is none of owlv2, grounding-dino",
        ),
        (
            "config.json",
            {"model_type": ["owlv2"]},
            r"'model_type': \['owlv2'\] is none of owlv2, grounding-dino",
        ),
        (
            "config.json",
            {"auto_map": {"AutoModel": "code.Model"}},
            "'auto_map': names code of the checkpoint",
        ),
        ("tokenizer_config.json", {"auto_map": {}}, "tokenizer_config.json: field 'auto_map'"),
        (
            "config.json",
            {"vision_config": {"num_hidden_layers": 1_000_000}},
            "expected at most 256, found 1000000",
        ),
        (
            "config.json",
            {"text_config": {"vocab_size": 4_000_000, "hidden_size": 512}},
            "describes a network of",
        ),
        (
            "config.json",
            {"text_config": {"hidden_size": 18}},
            "of another shape: .*owlv2.text_model",
        ),
        (
            "preprocessor_config.json",
            {"image_processor_type": "Own"},
            "'Own' is not one of transformers'",
        ),
    ],
)
def test_what_a_folder_must_not_say_is_refused(name, change, message, folders, tmp_path):
    folder = shutil.copytree(folders("owlv2"), tmp_path / "folder")
    content = json.loads((folder / name).read_text())
    for field, value in change.items():
        content[field] = {**content.get(field, {}), **value} if isinstance(value, dict) else value
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        create(folder).detect(np.zeros((8, 8, 3), np.uint8))


def test_a_backbone_that_is_a_model_on_the_hub_is_not_asked_for(folders, tmp_path):
    folder = shutil.copytree(folders("grounding-dino"), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    config |= {"backbone_config": None, "backbone": "owner/name", "use_timm_backbone": False}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        DataError,
        match="'backbone': names a model on the hub, 'owner/name': give its configuration",
    ):
        create(folder).header()


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("owlv2", {"unknown": ["x" * 40]}, "has 51 tokens; the text encoder reads at most 32"),
        (
            "omdet-turbo",
            {"classes": ["x" * 80]},
            "has 82 tokens; the text encoder reads at most 77",
        ),
        (
            "grounding-dino",
            {"classes": [f"cat {'red ' * n}dog" for n in range(1, 30)]},
            "reads at most 256: use fewer",
        ),
        ("grounding-dino", {"template": ["{}", "a {}"]}, "several templates cannot be averaged"),
        ("grounding-dino", {"unknown": ["mr. dog"]}, "has a dot or a question mark"),
        ("owlv2", {"unknown": ["cat"]}, "is also the class 'cat'"),
        ("owlv2", {"unknown": [""]}, "is empty"),
        ("owlv2", {"template": "a cat"}, "template"),
    ],
)
def test_prompts_that_the_network_cannot_read_are_refused(kind, params, message, folders):
    with pytest.raises(ParameterError, match=message):
        create(folders(kind), **params).header()
