"""Pages of a report that has all metrics show them."""

import re
import shutil

import pytest
from tests.report.conftest import PARAMS, evaluation_in, write_evaluation

from farther.evaluation.results import ClassifierResults, GroupResults
from farther.report import build
from farther.report.papers.layout import PAPERS
from farther.report.results import IMAGES

#: Values of a classifier and of splits that show known objects: the miniature project has neither.
KNOWN = {"ap_k": 0.5, "p_k": 0.5, "r_k": 0.5, "map": 0.5, "wi": 0.1}
SPECTRUM = {"id_regions": 20, "ood_regions": 2, "auroc": 0.5, "fpr95": 0.5}
PAIRS = {"images": 4, "found": 0.5, "misclassified": 0.1, "known": -0.1}
ERRORS = {"auroc": 0.5, "fpr95": 0.5, "detection_error95": 0.5, "correct": 18, "errors": 2}
RECOGNITION = {"oscr": 0.5, "macro_auroc": 0.5}
CLASSIFIER = {"accuracy": 0.9, "accuracy_top5": 0.95, "nll": 0.3, "ece": 0.1}


#: Titles of metrics by the page of the report that shows them.
TITLES = {
    "detectors/<run>.html": (
        "AUROC",
        "FPR95",
        "nOSE",
        "R_U",
        "P_U",
        "AP_U",
        "Missed",
        "False alarms per ID image",
        "ID flagged",
        "No detection",
        "mAP50",
        "mAP",
        "FPR95 (OOD positive)",
        "AUPR-In",
        "AUPR-Out",
        "Detection error",
        "Detection error at TPR 95%",
        "AOSE",
        "AP_U (11 points)",
        "Means over IoU",
        "Outcomes of unknown objects by size",
        "WI at recall 0.3",
        "DAQ",
        "IDQ",
        "LaECE",
        "LRP",
        "AUROC per image",
        "AP_K",
        "P_K",
        "R_K",
        "mAP (known and unknown)",
        "AUROC GTU",
        "FPR95 GTU",
        "AUPR-Out GTU",
        "AUROC UU",
        "FPR95 UU",
        "AUROC of correct ID",
        "FPR95 of correct ID",
        "U-Recall",
        "A-OSE",
        "WI@0.8",
        "A-OSE by class",
        "mAP_K before",
        "mAP_K",
        "Found because of the object",
        "Misclassified because of the object",
        "Change of known detections",
        "AUROC full-spectrum",
        "Accuracy",
        "Top-5 accuracy",
        "NLL",
        "ECE",
        "OSCR",
        "AUROC (mean of classes)",
    ),
    "papers/fmiyc.html": (
        "Tables 8 to 13",
        "Tables 14 to 25",
        "R_U",
        "P_U",
        "AP_U",
        "Table 1",
        "Table 3",
    ),
    "papers/openood.html": (
        "FPR@95",
        "full spectrum",
    ),
    "papers/realistic.html": (
        "Table VI",
        "Table VII",
    ),
    "papers/elephant.html": (
        "Table 2",
        "Figure 3",
        "Table 4",
    ),
    "papers/saod.html": (
        "Table 5",
        "Table 6",
        "Table 4",
        "BA",
    ),
    "methods.html": (
        "AUROC full-spectrum",
        "AUROC of errors",
        "AURC",
        "E-AURC",
        "OSCR",
    ),
    "compare.html": (
        "Accuracy",
        "Top-5 accuracy",
        "NLL",
        "ECE",
    ),
}


@pytest.fixture(scope="module")
def complete(built, tmp_path_factory):
    """The report of the miniature project, where `pets-later` is a classifier."""
    root = tmp_path_factory.mktemp("complete") / "project"
    shutil.copytree(built, root)
    artifacts = root / "artifacts"
    for folder in ("metrics", "regions", "outcomes"):
        shutil.copytree(artifacts / folder / "pets-net", artifacts / folder / "pets-later")
    for file in artifacts.glob("plots/*/pets-net.csv"):
        shutil.copy(file, file.with_name("pets-later.csv"))
    evaluation = evaluation_in(root)
    for evaluated in evaluation.methods.values():
        for split in evaluated.splits.values():
            for name, values in (("known", KNOWN), ("pairs", PAIRS), ("full_spectrum", SPECTRUM)):
                split.groups[name] = GroupResults(values=values)
        evaluated.misclassification.values.update(ERRORS)
        for means in evaluated.means.values():
            means.values["full_spectrum_auroc"] = 0.5
    write_evaluation(root, evaluation)
    evaluation.classifier = ClassifierResults(values=CLASSIFIER)
    for evaluated in evaluation.methods.values():
        for split in evaluated.splits.values():
            split.groups["recognition"] = GroupResults(values=RECOGNITION)
        for means in evaluated.means.values():
            means.values["oscr"] = 0.5
    evaluation.run = "pets-later"
    write_evaluation(root, evaluation)
    papers = list(PAPERS)
    return build({**PARAMS, "report": {**PARAMS["report"], "papers": papers}}, root).parent


@pytest.mark.parametrize("page", TITLES)
def test_the_page_has_the_metrics(complete, read, page):
    texts = []
    for name in {page.replace("<run>", run) for run in ("pets-net", "pets-later")}:
        elements = read(complete / name)
        for tag in ("th", "h2", "p"):
            texts += elements.texts(tag)
    text = " | ".join(texts).replace("\N{NO-BREAK SPACE}", " ").replace("_", "")
    assert [title for title in TITLES[page] if title.replace("_", "") not in text] == []


#: Headings of columns with numbers.
COUNTS = ("Images", "Objects", "Detections", "Errors", "Images tested", "Number", "n")

#: Tables whose percentages are no shares of a sample, or that are parameters.
WITHOUT_SAMPLE = r"Parameters|parameters and thresholds|inputs of|Not on this page|Similarity"


def text_of(html: str) -> str:
    """HTML without its tags, in single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def names_counts(caption: str, titles: list[str]) -> bool:
    """True if a table has a number of images, objects or detections in a column or a text."""
    if any(title.split(",")[0] in COUNTS for title in titles):
        return True
    text = " ".join([caption, *titles])
    return re.search(r"\d (images|objects|detections|errors)", text) is not None


def test_every_table_of_values_tells_how_many_it_comes_from(complete):
    """A column, a row or the caption has the number of images, objects or detections."""
    without = []
    for file in sorted(complete.rglob("*.html")):
        source = file.read_text(encoding="utf-8")
        for caption, head, body in re.findall(
            r'<table[^>]*aria-label="([^"]*)"[^>]*>(.*?)</thead>(.*?)</table>', source, re.DOTALL
        ):
            if re.search(WITHOUT_SAMPLE, caption) or f">{IMAGES}<" in body:
                continue
            titles = [text_of(cell) for cell in re.findall(r"<th.*?</th>", head, re.DOTALL)]
            has_values = "results" in head or any("%" in title for title in titles)
            if has_values and not names_counts(caption, titles):
                without.append((file.name, caption, titles))
    assert without == []
