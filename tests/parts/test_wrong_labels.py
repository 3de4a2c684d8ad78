"""The share of wrong labels: what clients report of their labels, the reference, and the three answers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpca.core import Verdict
from fedpca.parts.client.labels import adapt_to_shares, label_evidence, label_slope, side_by_side
from fedpca.parts.server.diagnose import InARow
from fedpca.parts.server.identify import Finding
from fedpca.parts.server.wrong_labels import ShareOfWrongLabels, label_numbers, reference_of

RULE = ShareOfWrongLabels(min_share=0.1, certainty=2.5, min_learned=0.4, max_unseen=0.2, min_clients=10)
ALONE = torch.zeros(1, dtype=torch.int64)


def predictions(images: int, classes: int, sure: float, seed: int, mostly: int | None = None):
    """A model that is calibrated: probabilities, and labels drawn from them; classes alike or `mostly` one."""
    rng = torch.Generator().manual_seed(seed)
    truth = torch.randint(classes, (images,), generator=rng)
    if mostly is not None:
        truth[torch.rand(images, generator=rng) < 0.9] = mostly
    logits = torch.randn(images, classes, generator=rng).double()
    logits[torch.arange(images), truth] += sure
    probs = (logits * sure).softmax(dim=1)
    return probs, torch.multinomial(probs, 1, generator=rng).flatten()


def flipped(labels: torch.Tensor, classes: int, share: float, kind: str = "symmetric", seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(labels), generator=rng)[: round(share * len(labels))]
    given = labels.clone()
    step = 1 if kind == "pair" else torch.randint(1, classes, (len(rows),), generator=rng)
    given[rows] = (given[rows] + step) % classes
    return given


def reported(probs: torch.Tensor, labels: torch.Tensor, loss: float = 1.0, dispersion: float = 1.0) -> dict[str, float]:
    (numbers,) = label_evidence(probs.T, labels, ALONE.expand(len(labels)), [len(labels)])
    return {"loss": loss, "dispersion": dispersion, **numbers}


def cohort(wrong: dict[int, float], clients: int = 12, classes: int = 10, images: int = 200, kind: str = "symmetric"):
    """Reports of clients of which some have a share of wrong labels."""
    found = {}
    for client in range(clients):
        probs, labels = predictions(images, classes, 2.0, client)
        found[str(client)] = reported(probs, flipped(labels, classes, wrong.get(client, 0.0), kind, client))
    return found


def answers(reports, rule: ShareOfWrongLabels = RULE) -> dict[int, str]:
    return {int(c): finding.estimate.answer for c, finding in rule(reports).items()}


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("share", [0.3, 0.45])
def test_the_estimate_is_the_share_of_wrong_labels(classes: int, kind: str, share: float):
    findings = RULE(cohort({0: share, 1: share}, classes=classes, kind=kind, images=400))
    for client in ("0", "1"):
        estimate = findings[client].estimate
        assert estimate.answer == findings[client].group == "mislabeled"
        assert estimate.share == pytest.approx(share, abs=0.07)
        assert estimate.low <= share <= estimate.high
    assert all(finding.group == "common" for client, finding in findings.items() if client not in ("0", "1"))


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 10]), st.integers(4, 15))
@settings(max_examples=25, deadline=None)
def test_where_nobody_is_mislabeled_nobody_is_judged_so(seed: int, classes: int, clients: int):
    drawn = {str(c): reported(*predictions(100, classes, 2.0, seed + c)) for c in range(clients)}
    assert "mislabeled" not in answers(drawn).values()


def test_one_class_at_a_client_does_not_make_its_labels_look_wrong():
    """A global model that expects all classes alike spreads its doubts over classes that the client does not have."""
    reports = cohort({}, images=300)
    probs, _ = predictions(300, 10, 2.0, 77)
    skewed, labels = predictions(300, 10, 2.0, 78, mostly=3)
    mixed = 0.5 * skewed + 0.5 * probs  # the model half believes in the usual classes
    assert label_slope(mixed, labels)["slope"] < 0.75 * reference_of(_numbers(reports), 0.4).slope
    assert answers({**reports, "99": reported(mixed, labels)})[99] != "mislabeled"


def test_adapted_predictions_have_the_clients_own_class_shares():
    probs, labels = predictions(500, 4, 1.0, 5, mostly=2)
    adapted = adapt_to_shares(side_by_side(probs.T, labels, ALONE.expand(500), [500])).probs[0]
    shares = (torch.bincount(labels, minlength=4) + 1) / 504
    assert adapted.sum(dim=0) == pytest.approx(1.0)
    assert adapted.mean(dim=1).tolist() == pytest.approx(shares.tolist(), abs=0.01)


def test_numbers_of_many_clients_are_those_of_each_alone():
    both = [predictions(40, 5, 2.0, 1), predictions(70, 5, 1.0, 2)]
    probs, labels = (torch.cat(parts) for parts in zip(*both, strict=True))
    together = label_evidence(probs.T, labels, torch.tensor([0] * 40 + [1] * 70), [40, 70])
    for own, (p, y) in zip(together, both, strict=True):
        alone = label_evidence(p.T, y, ALONE.expand(len(y)), [len(y)])[0]
        assert own == pytest.approx(alone, rel=1e-12)


def test_images_that_the_model_is_unsure_of_are_not_wrong_labels():
    """At 2.5 standard errors one of 160 is judged by chance."""
    reports = cohort({}, images=300)
    judged = []
    for client in range(100, 140):
        unsure = reported(*predictions(300, 10, 0.5, client))
        assert unsure["agreement"] < 0.7 * reports["0"]["agreement"]
        judged.append(answers({**reports, "99": unsure})[99] == "mislabeled")
    assert sum(judged) <= 1


def test_a_collapsed_client_can_be_judged_mislabeled():
    """All images predicted as one class, with dispersion at its floor: the paper's rule can only call that rare."""
    reports = cohort({}, images=300)
    probs, labels = predictions(300, 10, 2.0, 50)
    collapsed = 0.9 * torch.eye(10, dtype=torch.float64)[0] + 0.1 * probs
    assert set(collapsed.argmax(dim=1).tolist()) == {0}
    wrong = flipped(labels, 10, 0.9)
    findings = RULE({**reports, "right": reported(collapsed, labels), "wrong": reported(collapsed, wrong)})
    assert findings["wrong"].group == "mislabeled"
    assert findings["right"].group != "mislabeled"


@pytest.mark.parametrize("clients", [4, 20])
@pytest.mark.parametrize("claim", [1e9, 1e155, -1e9])
def test_one_liar_gets_nobody_judged_and_frees_nobody(clients: int, claim: float):
    honest = cohort({0: 0.5} if clients > 4 else {}, clients=clients - 1)
    for name in ("slope", "variation", "agreement", "slope_error"):
        liar = {**honest["1"], name: claim}
        found = answers({**honest, "99": liar})
        assert {c for c, answer in found.items() if answer == "mislabeled" and c != 99} == (
            {0} if clients > 4 else set()
        )


def test_fewer_liars_than_a_quarter_leave_the_reference_between_honest_values():
    honest = cohort({}, clients=20)
    slopes = sorted(own["slope"] for own in honest.values())
    for count in range(1, 6):
        liars = {f"liar {i}": {**honest["0"], "slope": 3.0, "agreement": 1.0} for i in range(count)}
        assert slopes[0] <= reference_of(_numbers({**honest, **liars}), 0.4).slope <= slopes[-1]


def test_more_than_half_may_be_mislabeled():
    found = answers(cohort(dict.fromkeys(range(12), 0.6), clients=20))
    assert {client for client, answer in found.items() if answer == "mislabeled"} == set(range(12))


def test_too_few_clients_cannot_be_told():
    findings = RULE(cohort({0: 0.8}, clients=2))
    assert {finding.estimate.answer for finding in findings.values()} == {"cannot tell"}
    assert all(finding.estimate.share is None and finding.group == "common" for finding in findings.values())


def test_too_few_images_cannot_be_told():
    reports = cohort({}, images=200)
    probs, labels = predictions(10, 10, 2.0, 31)
    found = answers({**reports, "99": reported(probs, flipped(labels, 10, 0.3))})
    assert found[99] == "cannot tell"


def test_before_anything_is_learned_nobody_is_judged():
    flat = torch.full((50, 10), 0.1, dtype=torch.float64)
    reports = {str(c): reported(flat, torch.arange(50) % 10) for c in range(6)}
    assert RULE(reports) is None
    assert RULE({"a": {"loss": 1.0, "dispersion": 2.0}}) is None


def test_while_little_is_learned_nobody_can_be_told():
    """A model that predicts a third of ten classes' labels has no say on whose labels are wrong."""
    reports = {str(c): reported(*predictions(200, 10, 0.8, c)) for c in range(8)}
    assert max(own["agreement"] for own in reports.values()) < 0.4
    assert set(answers(reports).values()) == {"cannot tell"}


def test_a_report_that_says_what_cannot_be_is_no_evidence():
    right = cohort({}, clients=1)["0"]
    assert label_numbers(right)
    for name, value in (("agreement", 1.5), ("variation", -0.1), ("classes", 1.0), ("slope_error", -1.0)):
        assert label_numbers({**right, name: value}) is None
    assert label_numbers({name: value for name, value in right.items() if name != "slope"}) is None


def test_rare_is_named_only_among_enough_clients():
    plane = [(0.3, 6.5), (0.31, 6.52), (0.29, 6.48), (0.32, 6.51), (0.28, 6.49), (0.3, 6.53), (0.33, 6.5), (0.27, 6.47)]
    rare = [(0.8, 6.0), (0.82, 5.98), (0.78, 6.02)]
    many = cohort({}, clients=11)
    for own, (loss, spread) in zip(many.values(), plane + rare, strict=True):
        own.update(loss=loss, dispersion=spread)
    assert {c for c, finding in RULE(many).items() if finding.group == "rare"} == {"8", "9", "10"}
    few = dict(list(many.items())[2:])
    assert {finding.group for finding in RULE(few).values()} == {"common"}


def groups(says: str, enter: int, leave: int) -> str:
    """The group after each finding: m for mislabeled."""
    verdict, found = Verdict(), ""
    for letter in says:
        verdict = InARow(enter, leave)(verdict, Finding("mislabeled" if letter == "m" else "common", 0.5))
        found += "m" if verdict.group == "mislabeled" else "c"
    return found


def test_entering_and_leaving_take_findings_in_a_row():
    assert groups("mmcmmccmccc", enter=1, leave=1) == "mmcmmccmccc"
    assert groups("mcmmcmccmccc", enter=2, leave=3) == "cccmmmmmmmmc"
    assert groups("mmmm", enter=3, leave=3) == "ccmm"


def _numbers(reports):
    return {client: label_numbers(own) for client, own in reports.items()}
