"""Kinds of OOD scores: of a detector that was not made for it, of its own label, of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farther import methods

POST_HOC = "post-hoc"
NATIVE = "native"
TEXT = "text"
IMPORTED = "imported"

#: Inputs of a method that compare an image with texts, where the classes are texts.
_CLASS_INPUTS = frozenset({"logits", "last_layer"})


def kind_of(
    entries: Mapping[str, Mapping[str, Any] | None], name: str, detector: Mapping[str, Any]
) -> str:
    """The kind of a method's score.

    Args:
        entries: Section `methods` of params.yaml.
        name: Name of the method's entry there.
        detector: The run's entry of section `detectors`.

    Returns:
        "native" for the detector's own label; "text" for scores from similarities to class names or
        prompts, of an open-vocabulary detector or of a pass of kind `crops`, alone or as a part of
        others; "imported" for those
        that were made elsewhere; else "post-hoc". "text" and "post-hoc" end in " + native" where
        the detector labels objects as unknown, which are flagged with every method.
    """
    method = _method(entries, name)
    if method == "native":
        return NATIVE
    if method == "imported":
        return IMPORTED
    kind = POST_HOC
    if any(_reads_texts(entries, part, detector) for part in [name, *_parts(entries, name)]):
        kind = TEXT
    if _labels_unknown(detector):
        return f"{kind} + {NATIVE}"
    return kind


def _method(entries: Mapping[str, Mapping[str, Any] | None], name: str) -> str:
    """The method of an entry, or a method that has no entry."""
    return str((entries.get(name) or {}).get("method", name))


def _parts(entries: Mapping[str, Mapping[str, Any] | None], name: str) -> list[str]:
    """The names of the entries and methods that an entry is made of."""
    entry = entries.get(name) or {}
    names: list[str] = []
    for parameter in ("of", "first", "then"):
        value = entry.get(parameter) or ()
        names += [value] if isinstance(value, str) else list(value)
    return names


def _labels_unknown(detector: Mapping[str, Any]) -> bool:
    """True if the detector itself labels objects as unknown."""
    classes = detector.get("classes") or {}
    params = detector.get("params") or {}
    return None in classes.values() or bool(params.get("unknown"))


def _reads_texts(
    entries: Mapping[str, Mapping[str, Any] | None], name: str, detector: Mapping[str, Any]
) -> bool:
    """Whether a score, without those that it is made of, is from similarities to texts."""
    pass_name = (entries.get(name) or {}).get("pass")
    pass_settings = (detector.get("passes") or {}).get(pass_name) or {}

    text_inputs: frozenset[str] = frozenset()
    if pass_settings.get("kind") == "crops":
        text_inputs = _CLASS_INPUTS
    elif detector.get("adapter") == "open_vocabulary":
        text_inputs = _CLASS_INPUTS | {"score"}
    method = _method(entries, name)
    if not text_inputs or method not in methods.names():
        return False
    return bool(methods.get(method).needs & text_inputs)
