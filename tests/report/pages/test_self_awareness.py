"""Sections on self-awareness: their first sentence."""

from farther.evaluation.long_table import Result
from farther.report.pages.self_awareness import first_sentence


def results_of(**values):
    """Results with these values."""
    return {key: Result(value) for key, value in values.items()}


def test_the_section_begins_with_what_is_accepted_and_how_far_confidences_are_off():
    values = {"tpr": 0.8, "tnr": 0.25, "laece": 0.05, "laece_t": None}
    assert first_sentence([results_of(**values)]) == (
        "80% of the ID test images are accepted, 25% of the OOD images are rejected and calibrated "
        "confidences are off by 5% on ID images (LaECE)."
    )
    other = {**values, "tpr": 0.9, "laece_t": 0.2}
    runs = [results_of(**values), results_of(**other)]
    assert first_sentence(runs) == (
        "Over 2 runs, 80% to 90% of the ID test images are accepted, 25% of the OOD images are "
        "rejected, calibrated confidences are off by 5% on ID images (LaECE) and by 20% on shifted "
        "ones."
    )


def test_without_values_there_is_no_sentence():
    assert first_sentence([{}]) == ""
    assert first_sentence([]) == ""
