"""ID images whose proposals may be unlabelled objects, and results without such images."""

import numpy as np
import pytest
from tests.evaluation.evaluated_runs import write_json, write_split

from farther.detectors.proposal_sources import read_sources
from farther.errors import ParameterError
from farther.evaluation.files import RunFiles
from farther.evaluation.recovery import evaluate_proposals
from farther.evaluation.results import write_results
from farther.evaluation.reviewed_images import reviewed_file
from farther.evaluation.settings import EvaluationSettings, ProposalSettings
from farther.review import ReviewSettings
from farther.review.serve import make_server
from farther.review.session import Filters
from farther.tables import Objects

CAT, SOFA, LAMP = [0, 0, 50, 50], [100, 0, 160, 60], [0, 100, 40, 140]
SETTINGS = EvaluationSettings(replicates=0, proposals=ProposalSettings(alarms=0.5, rates=(0.5,)))


@pytest.fixture
def files(project, saw):
    """Four ID images of the run `small`.

    In two of them two proposals lie on no detection; those of `a` are surer.
    """
    made = RunFiles("small", "tiny", project / "artifacts")
    cats = Objects(image_id=list("abcd"), object_id=range(4), box=[CAT] * 4, category=["cat"] * 4)
    for split in ("val", "test"):
        write_split(made, split, cats, saw(*((image, CAT, 0.9, 0) for image in "abcd")))
        rows = [
            ("a", CAT, 0.99),
            ("a", SOFA, 0.9),
            ("a", LAMP, 0.5),
            ("b", SOFA, 0.6),
            ("b", LAMP, 0.2),
        ]
        saw(*((*row, 0) for row in rows)).write(made.proposals("anchors", split))
    fox = Objects(image_id=["x"], object_id=[0], box=[SOFA], category=["Fox"])
    write_split(made, "photos_near", fox, saw(("x", LAMP, 0.1, 1)))
    saw(("x", SOFA, 0.55, 0)).write(made.proposals("anchors", "photos_near"))
    write_json(made.threshold, {"threshold": 0.5})
    write_json(
        project / "artifacts/splits/tiny/roles.json",
        {"test": ["photos_near"], "distance": {"photos_near": "near"}},
    )
    write_results(
        made.recovered, evaluate_proposals(made, read_sources("small", {"anchors": {}}), SETTINGS)
    )
    return made


@pytest.fixture
def session(files, project, there):
    there["detectors"] = {"small": {"benchmark": "tiny", "proposals": {"anchors": {}}}}
    with make_server(
        "tiny", there, ReviewSettings(reviewer="ann", suspects=True), project
    ) as server:
        yield server.session


def test_false_alarms_of_id_images_are_shown_the_surest_first(session):
    first, _, second, _ = session.queue(Filters(suspicious="yes"))
    shown = session.image(first)
    assert (shown["image_id"], shown["subset"]) == ("a", "test")
    assert [one["box"] for one in shown["detections"]] == [SOFA]  # at τ_o = 0.5, and not on the cat
    assert [one["name"] for one in shown["labels"]] == ["cat"]
    assert shown["fate"] == "counts for false alarms"
    assert shown["choices"] == ["keep", "remove"]
    assert session.image(second)["image_id"] == "b"


def test_results_are_given_with_and_without_images_in_which_an_object_is_not_labelled(
    session, files, project
):
    def read():
        return evaluate_proposals(files, read_sources("small", {"anchors": {}}), SETTINGS).sources

    assert list(read()) == ["anchors"]
    for row in session.queue(Filters()):
        image = session.image(row)
        session.decide(row, *(("remove", "", "a sofa") if image["image_id"] == "a" else ("keep",)))
    assert reviewed_file("tiny", project).is_file()
    found = read()
    every, reviewed = found["anchors"], found["anchors, reviewed"]
    assert (every.alarms, every.threshold) == (0.5, pytest.approx(0.5))
    # Of three images that are left, one has an alarm at 0.6 and one at 0.2; half an alarm per image
    # is one of them.
    assert (reviewed.alarms, reviewed.threshold) == (pytest.approx(1 / 3), pytest.approx(0.2))
    assert [of.distances["near"].values["still_missed"] for of in (every, reviewed)] == [0, 0]
    assert np.isclose(reviewed.proposals, 2 / 3)


def test_a_run_without_proposals_is_refused(files, project, there):
    with pytest.raises(ParameterError, match="run with proposals"):
        make_server("tiny", there, ReviewSettings(reviewer="ann", suspects=True), project)
