"""Common corruptions of images: noise, blur, weather and digital, each at five severities.

They are those of ImageNet-C and its validation set (Hendrycks and Dietterich, Benchmarking Neural
Network Robustness to Common Corruptions and Perturbations, ICLR 2019, arXiv:1903.12261), computed
by the package imagecorruptions-imaug.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import numpy as np

from farther.errors import DataError, ParameterError, choose, shorten

# Imported in functions: packages that only this kind of image needs, some optional.

#: The 15 corruptions of ImageNet-C.
IMAGENET_C = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)

#: The 15 corruptions of SAOD (Oksuz et al., 2023, arXiv:2307.00934, Appendix A.2).
SAOD = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "defocus_blur",
    "motion_blur",
    "gaussian_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)

#: All corruptions: those of ImageNet-C, and its four for validation.
KINDS = (*IMAGENET_C, "speckle_noise", "gaussian_blur", "spatter", "saturate")

#: From the mildest to the strongest.
SEVERITIES = (1, 2, 3, 4, 5)

#: Shortest side that the corruptions are defined for, in pixels.
SHORTEST = 32

#: Share of values that become black or white under impulse_noise, by severity.
_IMPULSES = (0.03, 0.06, 0.09, 0.17, 0.27)

#: Held while NumPy's global random state is another one.
_random_state_lock = threading.Lock()


def draw(name: str, seed: int, kinds: tuple[str, ...] = SAOD) -> tuple[str, int]:
    """Draws the corruption of an image and the seed of its random numbers from the image's name.

    So an image keeps its corruption when other images are added to its split or removed from it.

    Args:
        name: Of the image; with its severity, if each severity has a corruption of its own.
        seed: Seed of the draw.
        kinds: The corruptions to draw from.

    Returns:
        One of `kinds`, and a seed for `corrupt`.

    >>> draw("000001.jpg", seed=7) == draw("000001.jpg", seed=7) != draw("000002.jpg", seed=7)
    True
    """
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    image_seed = int.from_bytes(digest[8:12], "big")
    return kinds[number % len(kinds)], image_seed


def corrupt(image: np.ndarray, kind: str, severity: int, seed: int = 0) -> np.ndarray:
    """Applies one corruption to an image.

    The package prints from some corruptions: nothing that the process prints meanwhile, in other
    threads either, is shown.

    Args:
        image: ndarray of shape (height, width, 3), uint8: red, green, blue; both sides `SHORTEST`
            pixels or longer.
        kind: One of `KINDS`.
        severity: 1 to 5.
        seed: Of its random numbers, 0 to 2³² − 1; brightness, contrast, defocus_blur,
            gaussian_blur, zoom_blur, pixelate, saturate and jpeg_compression have none.

    Returns:
        ndarray of the same shape and type.

    Raises:
        ParameterError: the corruption or the severity is unknown, or imagecorruptions-imaug is not
            installed.
        DataError: the image has another shape or type, or is too small.

    >>> grey = np.full((32, 32, 3), 128, np.uint8)
    >>> corrupt(grey, "brightness", severity=5)[0, 0].tolist()  # half of the range is added
    [255, 255, 255]
    """
    choose("corruption", kind, KINDS)
    if severity not in SEVERITIES:
        known = ", ".join(str(known) for known in SEVERITIES)
        raise ParameterError(f"severity is one of {known}, found {shorten(severity)}")
    is_rgb = image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8
    if not is_rgb or min(image.shape[:2]) < SHORTEST:
        expected = f"uint8 of shape (height, width, 3), both sides at least {SHORTEST} pixels"
        raise DataError(
            f"expected {expected}, found {image.dtype} of shape {image.shape}", field="image"
        )
    package = _package()
    if kind == "impulse_noise":
        return _impulse_noise(image, severity, seed)

    # The package draws from NumPy's global generator, and glass_blur from one of its own.
    options = {"seed": seed} if kind == "glass_blur" else {}
    with _random_state_lock:
        before = np.random.get_state()  # noqa: NPY002
        np.random.seed(seed)  # noqa: NPY002
        try:
            corrupted = package.corrupt(image, severity=severity, corruption_name=kind, **options)
        finally:
            np.random.set_state(before)  # noqa: NPY002
    return np.asarray(corrupted, dtype=np.uint8)


def _package() -> Any:
    """The package imagecorruptions, which prints nothing.

    It prints where zoom_blur or snow makes a layer of another size than the image, which it mends.

    Raises:
        ParameterError: it is not installed.
    """
    try:
        import imagecorruptions
    except ImportError:
        raise ParameterError(
            "corruptions need imagecorruptions-imaug: pip install 'farther[corruptions]'"
        ) from None
    imagecorruptions.corruptions.print = lambda *_: None
    return imagecorruptions


def _impulse_noise(image: np.ndarray, severity: int, seed: int) -> np.ndarray:
    """The image with some values black or white; the package's function cannot be seeded."""
    from skimage.util import random_noise

    noisy = random_noise(image / 255, mode="s&p", amount=_IMPULSES[severity - 1], rng=seed)
    return (noisy * 255).astype(np.uint8)
