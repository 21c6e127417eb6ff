"""The table of methods beside those of pytorch-ood and OpenOOD is complete."""

from __future__ import annotations

import inspect
import re

import pytorch_ood.detector
from tests.docs.pages import Page

from farther import methods

#: The files of OpenOOD's `configs/postprocessors`, without those of one method's parameters, and
#: without older names of the same.
OPENOOD = {
    *("adascale_a", "adascale_l", "ash", "cfood", "cider", "conf_branch", "cutpaste", "dice"),
    *("draem", "dropout", "dsvdd", "ebo", "ensemble", "fdbd", "gen", "gmm", "godin", "gradnorm"),
    *("gram", "grood", "iodin", "kdad", "klm", "knn", "mcd", "mcm", "mds", "mds_ensemble", "mls"),
    *("mos", "msp", "nci", "nnguide", "npos", "odin", "opengan", "openmax", "patchcore"),
    *("rankfeat", "rd4ad", "react", "relation", "residual", "reweightood", "rmds", "rotpred"),
    *("rts", "scale", "she", "ssd", "t2fnorm", "temp_scaling", "vim", "vra"),
}
SECTION = "Beside pytorch-ood and OpenOOD"


def section() -> str:
    _, _, rest = Page("methods.md").text.partition(f"### {SECTION}\n")
    return rest.partition("\n## ")[0]


def cells(column: int) -> list[str]:
    """The cells of a column of the table, without its head."""
    rows = [line for line in section().splitlines() if line.startswith("| ")]
    return [row.split("|")[column].strip() for row in rows[2:]]


def names_of_all() -> list[str]:
    """Methods that have the same name everywhere, but for capitals: those before the table."""
    text = section().partition("All three")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", text)


def names_of_peer(column: int) -> list[str]:
    """What a peer calls its methods: the words of its cells outside brackets and additions."""
    names = names_of_all()
    for cell in cells(column):
        plain = re.sub(r"\(.*?\)|, with .*|, of any layers|–", "", cell)
        names += re.findall(r"\w+", plain)
    return names


def test_every_detector_of_pytorch_ood_is_in_the_table_once():
    detectors = []
    for name in pytorch_ood.detector.__all__:
        if inspect.isclass(getattr(pytorch_ood.detector, name)):
            detectors.append(name.lower())
    assert sorted(name.lower() for name in names_of_peer(3)) == sorted(detectors)


def test_every_postprocessor_of_openood_is_in_the_table_once():
    assert sorted(names_of_peer(4)) == sorted(OPENOOD)


def test_every_row_says_what_farther_has_or_why_it_has_nothing():
    for cell in cells(2):
        named = re.findall(r"`(\w+)`", cell)
        assert cell.startswith("no: ") or named[0] in methods.names(), cell
