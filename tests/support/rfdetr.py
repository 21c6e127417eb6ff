"""Files in the format of rfdetr 1.11.2's trainer, of a small network with weights by formula."""

import numpy as np
import torch

CLASSES = ["raccoon", "dog", "cat"]

#: The settings that rfdetr 1.11.2 stores, as far as they do not follow from the weights.
SETTINGS = {
    "encoder": "dinov2_windowed_small",
    "out_feature_indexes": [2, 4],
    "two_stage": True,
    "bbox_reparam": True,
    "lite_refpoint_refine": True,
    "layer_norm": True,
    "num_windows": 2,
    "sa_nheads": 2,
    "ca_nheads": 4,
    "dec_n_points": 2,
    "num_classes": 3,
    "resolution": 96,
}

WIDTH, HIDDEN, GROUPS, QUERIES, ROWS = 128, 32, 3, 12, 4


def linear(name, rows, columns):
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def convolution(name, rows, columns, side):
    return {f"{name}.conv.weight": (rows, columns, side, side), **norm(f"{name}.bn", rows)}


def mlp(name, rows, count=3, columns=HIDDEN):
    shapes = linear(f"{name}.layers.0", HIDDEN, columns)
    if count == 3:
        shapes |= linear(f"{name}.layers.1", HIDDEN, HIDDEN)
    return shapes | linear(f"{name}.layers.{count - 1}", rows, HIDDEN)


def shapes_of_rfdetr():
    """Names and shapes of the weights of a small RFDETRNano, as rfdetr 1.11.2 has them."""
    shapes = {}
    for layer in range(2):
        stem = f"transformer.decoder.layers.{layer}"
        shapes |= {f"{stem}.self_attn.in_proj_weight": (3 * HIDDEN, HIDDEN)}
        shapes |= {f"{stem}.self_attn.in_proj_bias": (3 * HIDDEN,)}
        shapes |= linear(f"{stem}.self_attn.out_proj", HIDDEN, HIDDEN)
        shapes |= linear(f"{stem}.cross_attn.sampling_offsets", 16, HIDDEN)
        shapes |= linear(f"{stem}.cross_attn.attention_weights", 8, HIDDEN)
        shapes |= linear(f"{stem}.cross_attn.value_proj", HIDDEN, HIDDEN)
        shapes |= linear(f"{stem}.cross_attn.output_proj", HIDDEN, HIDDEN)
        shapes |= linear(f"{stem}.linear1", 2048, HIDDEN) | linear(f"{stem}.linear2", HIDDEN, 2048)
        for number in (1, 2, 3):
            shapes |= norm(f"{stem}.norm{number}", HIDDEN)
    shapes |= norm("transformer.decoder.norm", HIDDEN)
    shapes |= mlp("transformer.decoder.ref_point_head", HIDDEN, count=2, columns=2 * HIDDEN)
    for group in range(GROUPS):
        shapes |= linear(f"transformer.enc_output.{group}", HIDDEN, HIDDEN)
        shapes |= norm(f"transformer.enc_output_norm.{group}", HIDDEN)
        shapes |= mlp(f"transformer.enc_out_bbox_embed.{group}", 4)
        shapes |= linear(f"transformer.enc_out_class_embed.{group}", ROWS, HIDDEN)
    shapes |= linear("class_embed", ROWS, HIDDEN) | mlp("bbox_embed", 4)
    shapes |= {
        "refpoint_embed.weight": (GROUPS * QUERIES, 4),
        "query_feat.weight": (GROUPS * QUERIES, HIDDEN),
    }

    stem = "backbone.0.encoder.encoder"
    shapes |= {
        f"{stem}.embeddings.cls_token": (1, 1, WIDTH),
        f"{stem}.embeddings.mask_token": (1, WIDTH),
    }
    shapes |= {f"{stem}.embeddings.position_embeddings": (1, 65, WIDTH)}
    shapes |= {f"{stem}.embeddings.patch_embeddings.projection.weight": (WIDTH, 3, 8, 8)}
    shapes |= {f"{stem}.embeddings.patch_embeddings.projection.bias": (WIDTH,)}
    for layer in range(4):
        block = f"{stem}.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            shapes |= linear(f"{block}.attention.attention.{part}", WIDTH, WIDTH)
        shapes |= linear(f"{block}.attention.output.dense", WIDTH, WIDTH)
        shapes |= linear(f"{block}.mlp.fc1", 2 * WIDTH, WIDTH) | linear(
            f"{block}.mlp.fc2", WIDTH, 2 * WIDTH
        )
        shapes |= norm(f"{block}.norm1", WIDTH) | norm(f"{block}.norm2", WIDTH)
        shapes |= {
            f"{block}.layer_scale1.lambda1": (WIDTH,),
            f"{block}.layer_scale2.lambda1": (WIDTH,),
        }
    shapes |= norm(f"{stem}.layernorm", WIDTH)

    stem = "backbone.0.projector.stages.0"
    shapes |= convolution(f"{stem}.0.cv1", HIDDEN, 2 * WIDTH, 1) | convolution(
        f"{stem}.0.cv2", HIDDEN, 80, 1
    )
    for block in range(3):
        shapes |= convolution(f"{stem}.0.m.{block}.cv1", 16, 16, 3)
        shapes |= convolution(f"{stem}.0.m.{block}.cv2", 16, 16, 3)
    shapes |= norm(f"{stem}.1", HIDDEN)
    return shapes


def weight(name, shape):
    """Values by a formula of the name, so that the package and this test have the same ones."""
    count = int(np.prod(shape))
    phase = sum(ord(letter) * (place + 1) for place, letter in enumerate(name)) % 997
    values = np.sin(np.arange(count, dtype=np.float64) * 1.7 * (1 + phase / 997) + phase)
    if len(shape) > 1:
        return (values * np.sqrt(2.0 / np.prod(shape[1:]))).reshape(shape)
    is_scale = name.endswith(("bn.weight", "0.1.weight", "lambda1")) or (
        "norm" in name and name.endswith("weight")
    )
    return (is_scale + 0.1 * values).reshape(shape)


def state_of_rfdetr():
    """Weights by rfdetr's names."""
    named = {
        name: torch.from_numpy(weight(name, shape)).float()
        for name, shape in shapes_of_rfdetr().items()
    }
    return {"_kp_active_mask": torch.zeros(0, 0, dtype=torch.bool), **named}


def content(state, **changes):
    """What rfdetr's trainer writes as `checkpoint_best_total.pth`."""
    return {
        "model": state,
        "args": {"class_names": CLASSES, "dataset_dir": "/data", "epochs": 3, "lr": 1e-4},
        "model_name": "RFDETRNano",
        "model_config": SETTINGS,
        "rfdetr_version": "1.11.2",
        "state_dict": {f"model.{name}": tensor for name, tensor in state.items()},
        "global_step": 40,
        "callbacks": {},
        "best_total_source": "ema",
        **changes,
    }
