"""The page of self-awareness: its first sentence."""

from dataclasses import replace

from farther.report.pages.self_awareness import content


def test_the_page_begins_with_what_is_accepted_and_how_far_confidences_are_off(make_run):
    values = {"tpr": 0.8, "tnr": 0.25, "laece": 0.05, "laece_t": None}
    run = make_run({"msp": {}}, {"self_awareness": {"values": values}})
    assert content([run], {})["message"] == (
        "80% of the ID test images are accepted, 25% of the OOD images are rejected and calibrated "
        "confidences are off by 5% on ID images (LaECE)."
    )
    other = {**values, "tpr": 0.9, "laece_t": 0.2}
    second = replace(make_run({"msp": {}}, {"self_awareness": {"values": other}}), name="other")
    assert content([run, second], {})["message"] == (
        "Over 2 runs, 80% to 90% of the ID test images are accepted, 25% of the OOD images are "
        "rejected, calibrated confidences are off by 5% on ID images (LaECE) and by 20% on shifted "
        "ones."
    )


def test_without_values_there_is_no_sentence(make_run):
    assert content([make_run({"msp": {}}, {})], {})["message"] == ""
    assert content([], {})["message"] == ""
