"""Configurations of CLIP from a folder or the hub: what of them may reach open_clip, timm and transformers.

open_clip passes parts of `open_clip_config.json` on as keyword arguments, some of which load and
run code from the folder. Only the keys that describe a network, with values that a network can
have, are allowed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from farther.errors import DataError
from farther.tables.documents import read_json

#: Keys of tokenizer files that name classes whose code lies beside them.
REMOTE = "auto_map"

_Size = Annotated[int, Field(ge=1, le=65_536)]
_Sides = _Size | Annotated[list[_Size], Field(min_length=2, max_length=2)]
_Layers = Annotated[int, Field(ge=1, le=256)]
_Count = Annotated[int, Field(ge=0, le=4_000_000)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Name = Annotated[str, Field(max_length=200)]
_Hub = Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$", max_length=200)]
_Channels = Annotated[list[_Number], Field(min_length=3, max_length=3)]


class _Part(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]


class _Norm(_Part, total=False):
    eps: _Number


class _Act(_Part, total=False):
    approximate: Literal["none", "tanh"]


class _Tower(_Part, total=False):
    width: _Size
    mlp_ratio: _Number
    ls_init_value: _Number | None
    final_ln_after_pool: bool
    pool_type: _Name
    output_tokens: bool
    act_kwargs: _Act | None
    norm_kwargs: _Norm | None
    block_type: _Name | None
    qk_norm: bool
    scaled_cosine_attn: bool
    scale_heads: bool
    scale_attn_inner: bool
    scale_attn: bool
    scale_fc: bool


class _Vision(_Tower, total=False):
    layers: _Layers | Annotated[list[_Layers], Field(min_length=4, max_length=4)]
    head_width: _Size
    patch_size: _Size | None
    image_size: _Sides
    patch_dropout: _Number
    attentional_pool: bool | _Name
    attn_pooler_queries: _Size
    attn_pooler_heads: _Size
    no_ln_pre: bool
    pos_embed_type: _Name
    timm_model_name: Annotated[str, Field(pattern=r"^[\w.]+$", max_length=200)] | None
    timm_model_pretrained: Literal[False]
    timm_pool: _Name
    timm_proj: _Name | None
    timm_proj_bias: bool
    timm_drop: _Number
    timm_drop_path: _Number | None


class _Tokenizer(_Part, total=False):
    clean: Literal["canonicalize", "lower", "whitespace"]
    strip_sep_token: bool
    language: _Name | None


class _Text(_Tower, total=False):
    context_length: _Size
    vocab_size: _Count
    heads: _Size
    layers: _Layers
    embed_cls: bool
    pad_id: _Count
    eos_id: _Count
    no_causal_mask: bool
    proj_bias: bool
    proj_type: _Name
    hf_tokenizer_name: _Hub | Literal[""] | None
    tokenizer_mode: _Name | None
    tokenizer_kwargs: _Tokenizer | None
    hf_model_name: _Hub | None
    hf_model_pretrained: bool
    hf_proj_type: _Name | None
    hf_pooler_type: _Name


class _Multimodal(_Part, total=False):
    context_length: _Size
    vocab_size: _Count
    width: _Size
    heads: _Size
    layers: _Layers
    mlp_ratio: _Number
    dim_head: _Size
    n_queries: _Size
    attn_pooler_heads: _Size


class _Model(_Part, total=False):
    embed_dim: _Size
    vision_cfg: _Vision
    text_cfg: _Text
    multimodal_cfg: _Multimodal
    quick_gelu: bool
    custom_text: bool
    init_logit_scale: _Number
    init_logit_bias: _Number | None


class _Preprocess(_Part, total=False):
    size: _Sides
    mode: Literal["RGB"]
    mean: _Channels
    std: _Channels
    interpolation: Literal["bicubic", "bilinear", "nearest", "random"]
    resize_mode: Literal["shortest", "longest", "squash"]
    fill_color: _Count


class _Config(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="ignore")  # type: ignore[misc]
    model_cfg: _Model
    preprocess_cfg: _Preprocess


def check_folder(folder: Path) -> None:
    """Refuses a folder whose configuration asks for more than a network, or whose tokenizer has code of its own.

    Raises:
        DataError: names file and field.
    """
    check_config(folder / "open_clip_config.json")
    for file in sorted(folder.glob("*.json")):
        content = read_json(file)
        if isinstance(content, dict) and REMOTE in content:
            raise DataError(
                "code in a folder of weights is never run; remove the field",
                file=file,
                field=REMOTE,
            )


def check_config(file: Path) -> None:
    """Refuses an `open_clip_config.json` with keys or values that do not describe a network.

    Raises:
        DataError: names file and field.
    """
    content: Any = read_json(file)
    try:
        TypeAdapter(_Config).validate_python(content)
    except ValidationError as error:
        problem = error.errors()[0]
        place = _place(content, problem["loc"])
        if problem["type"] == "extra_forbidden":
            raise DataError(
                "not a key that describes a network; remove it", file=file, field=place
            ) from None
        found = json.dumps(problem["input"], default=str)[:80]
        raise DataError(f"{problem['msg']}, found {found}", file=file, field=place) from None


def _place(content: Any, parts: tuple[int | str, ...]) -> str:
    """The keys among the parts of an error's place; others name a type that a value may have."""
    found: list[str] = []
    for part in parts:
        if isinstance(content, dict) and part in content:
            content = content[part]
            found.append(str(part))
    return ".".join(found)
