import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tests.support.messages import OUTSIDE

from farther.errors import DataError, ParameterError
from farther.images.clip import Encoder, EncoderParams
from farther.images.clip_config import check_config
from farther.similarity.embed import EmbedParams, embed, embed_dataset
from farther.similarity.embeddings import EmbeddingsFolder, NameEmbeddings
from farther.tables.documents import write_json


@pytest.fixture
def dataset(tmp_path, paint):
    """Tables of a dataset with two subsets, and the root of its files."""
    root, tables = tmp_path / "root", tmp_path / "tables"
    for subset, first in (("train", 0), ("val", 10)):
        images = paint(root, 10, first=first)
        images.write(tables / subset / "images.parquet")
    write_json(tables / "categories.json", {"categories": ["red", "tv monitor"], "parents": {}})
    return root, tables


@pytest.fixture
def other_clip(clip_folder, tmp_path):
    """Copies CLIP's folder with other values of its text tower; gives the folder."""

    def copied(**text):
        folder = tmp_path / "clip"
        shutil.copytree(clip_folder, folder)
        file = folder / "open_clip_config.json"
        config = json.loads(file.read_text())
        config["model_cfg"]["text_cfg"] |= text
        file.write_text(json.dumps(config))
        return folder

    return copied


def run(encoder, dataset, tmp_path, **params):
    root, tables = dataset
    lines = []
    given = EmbedParams(**{"workers": 0, **params})
    folders = embed_dataset(
        encoder,
        tables,
        root,
        tmp_path / "out",
        tmp_path / "work",
        given,
        progress=False,
        log=lines.append,
    )
    return folders, lines


def test_embeddings_have_length_one_and_stand_in_the_order_of_the_table(encoder, dataset, tmp_path):
    folders, _ = run(encoder, dataset, tmp_path, stored="float32")
    rows = folders["train"].read()
    assert rows.image_id.tolist() == [f"image {n}" for n in range(10)]
    np.testing.assert_allclose(np.linalg.norm(rows.embedding, axis=1), 1, atol=1e-6)


def test_they_are_those_that_open_clip_gives(encoder, clip_folder, dataset, tmp_path):
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{clip_folder}")
    images = torch.stack([transform(Image.open(dataset[0] / f"{n}.png")) for n in range(10)])
    with torch.inference_mode():
        expected = model.eval().encode_image(images, normalize=True).numpy()
    stored = run(encoder, dataset, tmp_path, stored="float32")[0]["train"].read()
    np.testing.assert_allclose(stored.embedding, expected, atol=1e-5)


def test_half_precision_moves_a_cosine_by_less_than_a_thousandth(encoder, dataset, tmp_path):
    half = run(encoder, dataset, tmp_path / "half")[0]["train"].read().embedding
    assert half.dtype == np.float16
    single = (
        run(encoder, dataset, tmp_path / "single", stored="float32")[0]["train"].read().embedding
    )
    half = half.astype(np.float32)
    assert np.abs(half @ half.T - single @ single.T).max() < 0.001


def test_class_names_are_embedded_in_a_sentence(encoder, dataset, tmp_path):
    run(encoder, dataset, tmp_path)
    names = NameEmbeddings.read(tmp_path / "out" / "names.parquet")
    assert names.name.tolist() == ["red", "tv monitor"]
    np.testing.assert_allclose(names.embedding, encoder.names(["red", "tv monitor"]), atol=1e-6)
    assert not np.allclose(names.embedding[0], names.embedding[1], atol=1e-3)


def test_a_subset_that_did_not_change_is_left_alone(encoder, dataset, tmp_path, paint):
    run(encoder, dataset, tmp_path)
    root, tables = dataset
    before = (tmp_path / "out" / "train" / "part-00000.parquet").stat().st_mtime_ns
    paint(root, 4, first=10).write(tables / "val" / "images.parquet")
    _, said = run(encoder, dataset, tmp_path)
    assert said[0] == "tables train: unchanged"
    assert "val: 4 images" in said[1]
    assert (tmp_path / "out" / "train" / "part-00000.parquet").stat().st_mtime_ns == before


def test_a_subset_that_is_gone_goes(encoder, dataset, tmp_path):
    run(encoder, dataset, tmp_path)
    (dataset[1] / "val" / "images.parquet").unlink()
    folders, _ = run(encoder, dataset, tmp_path)
    assert list(folders) == ["train"]
    assert not (tmp_path / "out" / "val").exists()


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(encoder, dataset, tmp_path, monkeypatch):
    whole, _ = run(encoder, dataset, tmp_path / "whole", shard_images=4)
    done = []

    def killed(prepared):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(len(prepared))
        return original(prepared)

    original = encoder.images
    monkeypatch.setattr(encoder, "images", killed)
    with pytest.raises(KeyboardInterrupt):
        run(encoder, dataset, tmp_path, shard_images=4)
    assert not (tmp_path / "out" / "train").exists()
    seen = []
    monkeypatch.setattr(
        encoder, "images", lambda prepared: seen.append(len(prepared)) or original(prepared)
    )
    resumed, _ = run(encoder, dataset, tmp_path, shard_images=4)
    assert sum(seen) == 2 + 10
    for one, other in zip(whole["train"].shards, resumed["train"].shards, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert whole["train"].info == resumed["train"].info
    assert not (tmp_path / "work").exists()


def test_worker_processes_change_nothing(encoder, dataset, tmp_path):
    alone = run(encoder, dataset, tmp_path / "alone")[0]["train"].read().embedding
    helped = (
        run(encoder, dataset, tmp_path / "helped", workers=2, batch_size=3)[0]["train"]
        .read()
        .embedding
    )
    np.testing.assert_allclose(alone.astype(np.float32), helped.astype(np.float32), atol=2e-3)


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_bytes(encoder, dataset, tmp_path, ray_cluster):
    local, _ = run(encoder, dataset, tmp_path / "local", shard_images=4, batch_size=2)
    on_ray, _ = run(encoder, dataset, tmp_path / "ray", shard_images=4, batch_size=2, engine="ray")
    for subset in ("train", "val"):
        shards = [
            [shard.read_bytes() for shard in folders[subset].shards] for folders in (local, on_ray)
        ]
        assert len(shards[0]) == 3
        assert shards[0] == shards[1]


def test_a_broken_image_is_listed_and_left_out_and_too_many_are_an_error(
    encoder, dataset, tmp_path
):
    (dataset[0] / "3.png").write_bytes(b"no picture")
    with pytest.raises(
        DataError, match=r"1 of 10 images cannot be used, more than max_failures = 0\.05"
    ):
        run(encoder, dataset, tmp_path, max_failures=0.05)
    folders, said = run(encoder, dataset, tmp_path, max_failures=0.2)
    assert said[0] == "tables train: 10 images, 1 failures"
    assert [failure["image_id"] for failure in folders["train"].info.failures] == ["image 3"]
    assert "image 3" not in folders["train"].read().image_id


def test_a_file_name_that_leaves_the_root_is_refused(encoder, dataset, tmp_path, paint):
    images = paint(dataset[0], 2)
    images = images.with_columns(file=[images.file[0], "../secret.png"])
    with pytest.raises(DataError, match=OUTSIDE):
        embed(
            encoder,
            images,
            dataset[0],
            tmp_path / "out",
            tmp_path / "work",
            EmbedParams(workers=0),
            progress=False,
        )


def test_other_weights_are_another_key(other_clip, encoder, dataset, tmp_path):
    run(encoder, dataset, tmp_path)
    other = other_clip()
    weights = load_file(other / "open_clip_model.safetensors")
    weights["visual.conv1.weight"] += torch.tensor(0.1)
    save_file(weights, other / "open_clip_model.safetensors")
    changed = Encoder(EncoderParams(model=f"local-dir:{other}", device="cpu"))
    assert changed.identity["weights_digest"] != encoder.identity["weights_digest"]
    assert not any("unchanged" in line for line in run(changed, dataset, tmp_path)[1])


def test_a_folder_of_something_else_is_refused(tmp_path):
    write_json(tmp_path / "embeddings.json", {"format": "holiday"})
    with pytest.raises(
        DataError, match=r"field 'format': Input should be 'farther\.embeddings', found 'holiday'"
    ):
        EmbeddingsFolder(tmp_path)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "ViT-B-32"}, "'ViT-B-32' is an architecture; name its weights"),
        ({"model": "ViT-Z", "pretrained": "openai"}, "Model config for 'ViT-Z' not found"),
        ({"model": "ViT-B-32", "pretrained": "no such tag"}, "not a known tag"),
        ({"model": "local-dir:nowhere"}, "nowhere holds no open_clip_config.json"),
        ({"model": "local-dir:somewhere", "pretrained": "openai"}, "includes weights"),
    ],
)
def test_a_model_that_is_not_there_is_named(params, message):
    with pytest.raises(ParameterError, match=message):
        Encoder(EncoderParams(**params, device="cpu"))


def test_weights_that_do_not_fit_are_an_error(other_clip):
    with pytest.raises(ParameterError, match="Error"):
        Encoder(EncoderParams(model=f"local-dir:{other_clip(layers=2)}", device="cpu"))


def test_pickled_weights_that_would_run_code_are_refused(clip_folder, tmp_path):
    class Attack:
        def __reduce__(self):
            return (tmp_path.joinpath("touched").write_text, ("",))

    other = tmp_path / "clip"
    other.mkdir()
    shutil.copy(clip_folder / "open_clip_config.json", other)
    (other / "open_clip_pytorch_model.bin").write_bytes(pickle.dumps({"w": Attack()}, protocol=2))
    with pytest.raises(ParameterError):
        Encoder(EncoderParams(model=f"local-dir:{other}", device="cpu"))
    assert not (tmp_path / "touched").exists()


TOKENIZER = """
import pathlib
from transformers import PreTrainedTokenizerFast
class Tokenizer(PreTrainedTokenizerFast):
    pathlib.Path({touched!r}).write_text("ran")
"""


@pytest.mark.parametrize(
    ("kwargs", "field"),
    [
        ({"trust_remote_code": True}, "model_cfg.text_cfg.tokenizer_kwargs.trust_remote_code"),
        ({}, "auto_map"),
    ],
)
def test_code_in_a_folder_is_never_run(other_clip, tmp_path, kwargs, field):
    folder = other_clip(hf_tokenizer_name="x", tokenizer_kwargs=kwargs)
    (folder / "tokenization.py").write_text(TOKENIZER.format(touched=str(tmp_path / "touched")))
    described = {
        "tokenizer_class": "Tokenizer",
        "auto_map": {"AutoTokenizer": [None, "tokenization.Tokenizer"]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    with pytest.raises(DataError) as error:
        Encoder(EncoderParams(model=f"local-dir:{folder}", device="cpu"))
    assert error.value.field == field
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ({"layers": 1_000_000}, "layers"),
        ({"hf_model_name": "../../etc"}, "hf_model_name"),
        ({"hf_model_name": ".."}, "hf_model_name"),
        ({"hf_model_name": "/etc"}, "hf_model_name"),
        ({"hf_tokenizer_name": "https://example.org/x"}, "hf_tokenizer_name"),
        (
            {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"cache_dir": "/"}},
            "tokenizer_kwargs.cache_dir",
        ),
        (
            {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"vocab_file": "x"}},
            "tokenizer_kwargs.vocab_file",
        ),
        ({"of_a_next_release": {"weights_only": False}}, "of_a_next_release.weights_only"),
    ],
)
def test_a_configuration_that_loads_files_or_is_huge_is_refused_with_its_place(
    other_clip, text, field
):
    folder = other_clip(**text)
    with pytest.raises(DataError) as error:
        Encoder(EncoderParams(model=f"local-dir:{folder}", device="cpu"))
    assert (Path(str(error.value.file)), error.value.field) == (
        folder / "open_clip_config.json",
        f"model_cfg.text_cfg.{field}",
    )


def test_a_key_of_a_next_release_passes_and_open_clip_decides(other_clip):
    folder = other_clip(made_up=1)
    check_config(folder / "open_clip_config.json")
    with pytest.raises(ParameterError, match="unexpected keyword argument 'made_up'"):
        Encoder(EncoderParams(model=f"local-dir:{folder}", device="cpu"))


@pytest.mark.parametrize(
    "preprocessing", [{"mode": "L"}, {"interpolation": "cubist"}, {"mean": [0.5, "b", 0.5]}]
)
def test_wrong_preprocessing_is_an_error_of_the_model(other_clip, preprocessing):
    folder = other_clip()
    file = folder / "open_clip_config.json"
    config = json.loads(file.read_text())
    config["preprocess_cfg"] |= preprocessing
    file.write_text(json.dumps(config))
    with pytest.raises(ParameterError, match="model 'local-dir:"):
        Encoder(EncoderParams(model=f"local-dir:{folder}", device="cpu"))


def test_weights_are_never_fetched_for_a_part_of_the_network(other_clip):
    folder = other_clip()
    file = folder / "open_clip_config.json"
    config = json.loads(file.read_text())
    config["model_cfg"]["vision_cfg"] |= {"timm_model_pretrained": True}
    file.write_text(json.dumps(config))
    with pytest.raises(DataError) as error:
        check_config(file)
    assert error.value.field == "model_cfg.vision_cfg.timm_model_pretrained"


def test_all_configurations_that_open_clip_ships_pass(tmp_path):
    for file in sorted((Path(open_clip.__file__).parent / "model_configs").glob("*.json")):
        (tmp_path / file.name).write_text(json.dumps({"model_cfg": json.loads(file.read_text())}))
        check_config(tmp_path / file.name)
