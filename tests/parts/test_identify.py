"""The paper's rule and `auto` on planes whose answer is known."""

from itertools import permutations
from math import log

import numpy as np
import pytest

from fedpca.parts.client.report import FLOOR
from fedpca.parts.server.identify import (
    ThreeGroups,
    WrongShares,
    distance_above,
    rare_among,
    reference,
    scaled,
    upper_right,
)

COMMON = [(0.30, 6.50), (0.31, 6.52), (0.29, 6.48), (0.32, 6.51), (0.28, 6.49), (0.30, 6.53)]
RARE = [(0.80, 6.00), (0.82, 5.98), (0.78, 6.02)]
NOISY = [(4.0, 6.42), (4.1, 6.40), (3.9, 6.44)]
TWELVE = COMMON + RARE + NOISY


def reports(points) -> dict[str, dict[str, float]]:
    return {str(i): {"loss": float(loss), "dispersion": float(spread)} for i, (loss, spread) in enumerate(points)}


def accused(findings) -> set[int]:
    return {int(client) for client, finding in findings.items() if finding.group == "mislabeled"}


def named(findings, group: str) -> set[int]:
    return {int(client) for client, finding in findings.items() if finding.group == group}


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_the_specifications_twelve_clients(covariance: str, membership: str):
    findings = ThreeGroups(
        covariance=covariance, membership=membership, starts=9, ridge=1e-06, steps=100, scale="minmax", min_margin=None
    )(reports(TWELVE))
    assert accused(findings) == {9, 10, 11}
    assert named(findings, "rare") == {6, 7, 8}
    assert findings["9"].evidence == pytest.approx(1, abs=1e-6)
    assert findings["0"].evidence == pytest.approx(0, abs=1e-6)


def centroids(*places: tuple[float, float]) -> np.ndarray:
    return np.array(places)


def test_the_specifications_distances():
    plane = centroids((0.3, 6.505), (0.8, 6.0), (4.0, 6.42))
    assert [distance_above(plane, i)[0] for i in range(3)] == pytest.approx([-np.inf, -0.493383, 2.569475], abs=1e-6)
    points = scaled(np.array(TWELVE))
    means = centroids(points[:6].mean(axis=0), points[6:9].mean(axis=0), points[9:].mean(axis=0))
    assert [distance_above(means, i)[0] for i in range(3)] == pytest.approx([-np.inf, -0.886089, 0.937082], abs=1e-6)
    overlap = centroids((0.45, 6.3), (1.6, 5.8), (1.6, 6.2))
    assert [distance_above(overlap, i)[0] for i in range(3)] == pytest.approx([-np.inf, -0.398496, 0.366828], abs=1e-6)
    assert upper_right(overlap)[0] == 2


def test_of_two_candidates_the_one_of_smallest_loss_is_never_chosen():
    chain = centroids((0.3, 6.5), (0.8, 6.0), (4.0, 5.9))
    assert [distance_above(chain, i)[0] for i in range(3)] == pytest.approx([0.484139, -0.413517, 2.192031], abs=1e-6)
    for order in permutations(range(3)):
        assert order[upper_right(chain[list(order)])[0]] == 2


def test_without_a_candidate_the_largest_sum_of_coordinates_is_taken():
    chosen, margin, _ = upper_right(centroids((0, 2), (1, 1), (2, 0)))  # on one line
    assert chosen != 0
    assert margin == 0
    assert upper_right(centroids((0, 0), (1, 1), (2, 2.5)))[0] == 2


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_clients_does_not_matter(order):
    groups = [list(enumerate(TWELVE))[:6], list(enumerate(TWELVE))[6:9], list(enumerate(TWELVE))[9:]]
    shuffled = [item for i in order for item in groups[i]]
    findings = ThreeGroups(
        starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
    )({str(i): {"loss": p[0], "dispersion": p[1]} for i, p in shuffled})
    assert accused(findings) == {9, 10, 11}


def test_swapping_the_axes_gives_the_same_set():
    """Up-right of a falling line is the same seen from either axis; the guard against the common group aside."""
    points = centroids((0.3, 0.9), (0.9, 0.3), (1.5, 1.4))
    assert distance_above(points, 2)[0] == pytest.approx(distance_above(points[:, ::-1], 2)[0])
    assert upper_right(points)[0] == upper_right(points[:, ::-1])[0] == 2


def test_stretching_the_axes_changes_nothing():
    stretched = [(100 * loss + 3, 0.01 * spread - 7) for loss, spread in TWELVE]
    assert accused(
        ThreeGroups(
            starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
        )(reports(stretched))
    ) == {9, 10, 11}


def test_a_gate_keeps_a_loose_group_from_being_accused():
    rng = np.random.default_rng(0)
    nobody = np.concatenate([rng.normal((0.3, 6.5), 0.05, (45, 2)), rng.normal((0.9, 6.0), 0.05, (5, 2))])
    assert accused(
        ThreeGroups(
            starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
        )(reports(nobody))
    ), "the paper's rule always names somebody"
    assert (
        accused(
            ThreeGroups(
                min_margin=3, starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard"
            )(reports(nobody))
        )
        == set()
    )
    assert accused(
        ThreeGroups(
            min_margin=3, starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard"
        )(reports(TWELVE))
    ) == {9, 10, 11}


@pytest.mark.parametrize(
    "points",
    [[], [(1.0, 2.0)], [(1.0, 2.0), (2.0, 1.0)], [(1.0, 2.0)] * 9, [(1.0, 2.0)] * 5 + [(2.0, 1.0)] * 4],
)
def test_fewer_than_three_different_points_tell_nothing(points):
    assert (
        ThreeGroups(
            starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
        )(reports(points))
        is None
    )


def test_a_constant_column_is_no_obstacle():
    points = [(0.3, 6.0), (0.31, 6.0), (0.9, 6.0), (0.91, 6.0), (3.0, 6.0), (3.1, 6.0)]
    findings = ThreeGroups(
        starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
    )(reports(points))
    assert findings is None or accused(findings) <= {2, 3, 4, 5}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_client_without_finite_numbers_is_not_judged(bad: float):
    told = reports(TWELVE)
    told["12"] = {"loss": bad, "dispersion": 6.5}
    told["13"] = {"loss": 0.3}
    findings = ThreeGroups(
        starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
    )(told)
    assert accused(findings) == {9, 10, 11}
    assert not {"12", "13"} & findings.keys()


@pytest.mark.parametrize("loss", [0.1, 1.5, 4.0, 30.0])
def test_a_client_with_one_predicted_class_is_rare_whatever_its_loss_and_does_not_spoil_the_fit(loss: float):
    """A high loss *despite* a high dispersion cannot be: the paper's rule does not see such a client's labels."""
    told = reports([*TWELVE, (loss, log(FLOOR))])
    findings = ThreeGroups(
        starts=9, covariance="full", ridge=1e-06, steps=100, scale="minmax", membership="hard", min_margin=None
    )(told)
    assert findings["12"].group == "rare"
    assert accused(findings) == {9, 10, 11}


def slopes(values, errors: float = 0.02, plane=None):
    plane = plane or [(0.3 + 0.01 * (i % 5), 6.5 + 0.01 * (i % 7)) for i in range(len(values))]
    return {
        str(i): {"loss": loss, "dispersion": spread, "slope": float(value), "slope_error": errors}
        for i, (value, (loss, spread)) in enumerate(zip(values, plane, strict=True))
    }


def test_auto_estimates_the_share_of_uninformative_labels():
    findings = WrongShares(share=0.25, certainty=2.0)(slopes([1.2] * 8 + [0.6, 0.3]))
    assert accused(findings) == {8, 9}
    assert findings["8"].evidence == pytest.approx(0.5)
    assert findings["9"].evidence == pytest.approx(0.75)
    assert findings["0"].evidence == 0


def test_auto_accuses_nobody_among_equals():
    rng = np.random.default_rng(0)
    for _ in range(100):
        assert accused(WrongShares(share=0.25, certainty=2.0)(slopes(rng.normal(1.1, 0.05, 10)))) == set()


def test_auto_finds_a_mislabeled_majority():
    assert accused(WrongShares(share=0.25, certainty=2.0)(slopes([1.1] * 4 + [0.5] * 6))) == {4, 5, 6, 7, 8, 9}


def test_auto_needs_certainty():
    assert accused(WrongShares(share=0.25, certainty=2.0)(slopes([1.0] * 8 + [0.6, 0.6], errors=0.3))) == set()
    assert accused(WrongShares(share=0.25, certainty=2.0)(slopes([1.0] * 8 + [0.6, 0.6], errors=0.1))) == {8, 9}


def test_auto_says_nothing_before_anything_is_learned():
    assert WrongShares(share=0.25, certainty=2.0)(slopes([-0.1, 0.0, -0.3])) is None
    assert WrongShares(share=0.25, certainty=2.0)({}) is None
    assert WrongShares(share=0.25, certainty=2.0)(reports(TWELVE)) is None


def test_inverted_labels_are_evidence_of_one_at_most():
    assert WrongShares(share=0.25, certainty=2.0)(slopes([1.0] * 5 + [-0.9]))["5"].evidence == 1.0


def test_auto_leaves_out_who_sends_no_finite_slope():
    told = slopes([1.0] * 5 + [0.2])
    told["4"]["slope"] = float("nan")
    findings = WrongShares(share=0.25, certainty=2.0)(told)
    assert accused(findings) == {5}
    assert "4" not in findings


def test_auto_names_the_rare_where_there_are_some():
    plane = [(0.3 + 0.005 * i, 6.5 + 0.01 * (i % 3)) for i in range(12)] + [(0.9, 5.9), (0.92, 5.92), (0.88, 5.91)]
    findings = WrongShares(share=0.25, certainty=2.0)(slopes([1.0] * 15, plane=plane))
    assert named(findings, "rare") == {12, 13, 14}
    assert accused(findings) == set()


def test_one_cloud_has_no_rare_clients():
    rng = np.random.default_rng(1)
    clouds = [rng.normal((0.3, 6.5), (0.03, 0.02), (20, 2)) for _ in range(50)]
    assert sum(bool(rare_among({str(i): tuple(p) for i, p in enumerate(cloud)})) for cloud in clouds) <= 2


def test_more_loss_with_more_dispersion_is_not_rare():
    plane = {str(i): (0.3 + 0.001 * i, 6.5 + 0.001 * i) for i in range(10)}
    plane |= {str(10 + i): (0.9 + 0.001 * i, 7.5 + 0.001 * i) for i in range(4)}
    assert rare_among(plane) == set()


def test_a_few_rare_clients_with_larger_slopes_do_not_make_the_common_ones_suspect():
    assert accused(WrongShares(share=0.25, certainty=2.0)(slopes([1.6] * 4 + [1.15] * 8 + [0.55] * 8))) == set(
        range(12, 20)
    )


def test_the_reference_is_that_of_informative_labels():
    assert reference([1.0, 1.1, 0.9, 0.4, 0.3], 0.25) == pytest.approx(1.0)
    assert reference([], 0.25) is None
