"""Checkpoints of each kind of network, and bundles of a Monitor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.disturbed.valid.files import delete, write

CLASSES = ("cat", "dog", "fox")
IMAGE = np.random.default_rng(3).integers(0, 256, (50, 70, 3), np.uint8)


def _seeded() -> Any:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch


def faster_rcnn() -> None:
    _seeded()
    from farther.detectors.networks.architectures import (
        FasterRCNNBlueprint,
        build_network,
        save_checkpoint,
    )

    blueprint = FasterRCNNBlueprint("small", CLASSES, 64, 96)
    save_checkpoint("a.safetensors", build_network(blueprint).state_dict(), blueprint)


def torchvision() -> None:
    torch = _seeded()
    from farther.detectors.networks.architectures import FasterRCNNBlueprint, build_network

    torch.save(
        build_network(FasterRCNNBlueprint("small", CLASSES, 64, 96)).half().state_dict(), "a.pth"
    )


#: A network of Ultralytics' layers in miniature.
YOLO = {
    "nc": 3, "scales": {"n": [0.33, 0.25, 1024]}, "scale": "n", "yaml_file": "tiny.yaml",
    "backbone": [[-1, 1, "Conv", [16, 3, 2]], [-1, 1, "Conv", [32, 3, 2]], [-1, 1, "C2f", [32, True]], [-1, 1, "Conv", [32, 3, 2]], [-1, 1, "SPPF", [32, 5]]],
    "head": [[-1, 1, "nn.Upsample", [None, 2, "nearest"]], [[-1, 2], 1, "Concat", [1]], [-1, 1, "C2f", [32]], [[7, 4], 1, "Detect", ["nc"]]],
}  # fmt: skip


def yolo() -> None:
    _seeded()
    from farther.detectors.networks.yolo import YoloBlueprint, build_network, save_checkpoint

    blueprint = YoloBlueprint(YOLO, CLASSES, 64)
    save_checkpoint("a.safetensors", build_network(blueprint), blueprint)


def ultralytics() -> None:
    torch = _seeded()
    from farther.detectors.networks.yolo import YoloBlueprint, build_network

    network = build_network(YoloBlueprint(YOLO, CLASSES, 64)).half()
    torch.save({"model": network, "ema": None, "train_args": {"imgsz": 64}}, "a.pt")


def _stages(kind: str, names: list[str]) -> dict[str, Any]:
    sizes = {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4}
    return {"model_type": kind, "layer_type": "basic", "out_features": names, **sizes}


RT_DETR = {
    "model_type": "rt_detr", "backbone_config": _stages("rt_detr_resnet", ["stage2", "stage3", "stage4"]), "encoder_in_channels": [8, 8, 8], "encoder_hidden_dim": 16,
    "d_model": 16, "decoder_in_channels": [16, 16, 16], "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "decoder_layers": 1, "num_queries": 12,
}  # fmt: skip
DETR = {
    "model_type": "detr", "backbone_config": _stages("resnet", ["stage4"]), "use_timm_backbone": False, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_queries": 12,
}  # fmt: skip
#: What images are normalised by, in processors of transformers and elsewhere.
NORMALISED = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
SCALED = {"mean": [0.5] * 3, "std": [0.2] * 3}
PROCESSORS: dict[str, dict[str, Any]] = {
    "rt_detr": {"image_processor_type": "RTDetrImageProcessor", "size": {"height": 64, "width": 96}, "do_pad": False, "do_normalize": True, **NORMALISED, "resample": 2},
    "detr": {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 48, "longest_edge": 96}, "do_pad": True, "do_normalize": True},
}  # fmt: skip


def _blueprint(config: dict[str, Any]) -> Any:
    from farther.detectors.networks.detr import DetrBlueprint

    return DetrBlueprint(config, PROCESSORS[config["model_type"]], CLASSES)


def detr(config: dict[str, Any]) -> None:
    _seeded()
    from farther.detectors.networks.detr import build_network

    network = build_network(_blueprint(config))
    network.save_pretrained("m")
    write({"m/preprocessor_config.json": PROCESSORS[config["model_type"]]})


def lightning() -> None:
    torch = _seeded()
    from farther.detectors.networks.detr import build_network

    network = build_network(_blueprint(RT_DETR))
    network.save_pretrained("m")
    write({"m/preprocessor_config.json": PROCESSORS["rt_detr"]})
    Path("m/model.safetensors").unlink()
    torch.save(
        {"state_dict": {f"model.{k}": v for k, v in network.state_dict().items()}, "epoch": 3},
        "m/a.ckpt",
    )


def own_detr() -> None:
    _seeded()
    from farther.detectors.networks.detr import build_network, save_checkpoint

    save_checkpoint(
        "a.safetensors", build_network(_blueprint(RT_DETR)).state_dict(), _blueprint(RT_DETR)
    )


def clip() -> None:
    _seeded()
    from open_clip import CLIP
    from safetensors.torch import save_file

    vision = {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8}
    text = {"context_length": 16, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}
    model = {"embed_dim": 8, "vision_cfg": vision, "text_cfg": text}
    preprocessing = {"interpolation": "bicubic", "size": 32, **SCALED}
    write({"m/open_clip_config.json": {"model_cfg": model, "preprocess_cfg": preprocessing}})
    network = CLIP(**model).half()
    save_file(network.state_dict(), "m/open_clip_model.safetensors")


def classifier() -> None:
    _seeded()
    from farther.detectors.classifier import ClassifierBlueprint, OpenOODResNet, save_checkpoint

    blueprint = ClassifierBlueprint(
        "openood_resnet", CLASSES, {"resize": 32, "crop": 32, "interpolation": "bilinear", **SCALED}
    )
    save_checkpoint("a.safetensors", OpenOODResNet([8, 8, 8], [1, 1, 1], 3).state_dict(), blueprint)


def openood() -> None:
    torch = _seeded()
    from farther.detectors.classifier import OpenOODResNet

    torch.save({"net": OpenOODResNet([8, 8, 8], [1, 1, 1], 3).state_dict()}, "a.ckpt")


VIT = {
    "model_type": "vit", "image_size": 32, "patch_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
}  # fmt: skip


def vit() -> None:
    _seeded()
    from transformers import AutoConfig, AutoModelForImageClassification

    names = dict(enumerate(CLASSES))
    config = AutoConfig.for_model(
        **VIT, id2label=names, label2id={name: k for k, name in names.items()}
    )
    AutoModelForImageClassification.from_config(config).save_pretrained("m")
    size = {"height": 32, "width": 32}
    write(
        {
            "m/preprocessor_config.json": {
                "image_processor_type": "ViTImageProcessor",
                "size": size,
                **NORMALISED,
            }
        }
    )


def open_vocabulary(kind: str) -> None:
    _seeded()
    from tests.detectors.test_open_vocabulary import write_folder

    write({"m/negatives.txt": "thing\nblue box\n"})
    write_folder(Path("m"), kind)


def yolo_world() -> None:
    _seeded()
    from tests.detectors import test_yolo_world

    test_yolo_world.write(test_yolo_world.untrained("worldv2"), Path("a.pt"))


def bundle() -> None:
    """A bundle of k-nearest neighbours for the small Faster R-CNN."""
    faster_rcnn()
    from tests.monitor.conftest import make

    params = {"score_threshold": 0.01}
    entry = {
        "adapter": "faster_rcnn",
        "weights": "a.safetensors",
        "params": params,
        "benchmark": "drawn",
    }
    made = make(Path.cwd(), entry, {"knn": {"k": 2}}, 0.01)
    made.bundle("knn").rename("bundle")
    for name in ("artifacts", "bundles", "train", "val", "a.safetensors"):
        delete(Path(name))


def monitor() -> None:
    from farther.monitor import Bundle, Monitor

    Monitor(Bundle.load("bundle"), "cpu")(IMAGE)


def detect(adapter: str, weights: str, **params: Any) -> None:
    """Loads a detector and detects objects in one image."""
    from farther import detectors

    detector = detectors.create(adapter, weights=Path(weights), device="cpu", **params)
    detector.header()
    detector.detect(IMAGE)
