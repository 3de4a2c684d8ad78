"""Numbers by which wrong labels may show, of one client: probabilities (n, C), features (n, d) and labels (n,).

All that any rule of `studies.compare` looks at beside loss, dispersion and what `auto` asks for. Write p for an image's
probabilities, y for its given label, [y] for that as a vector of zeros and a one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpca.parts.client.labels import adapt_to_shares, label_slope, side_by_side

TEMPERATURES = (0.35, 0.6, 1.0, 1.7, 2.8)  # factors of the logits, of which the likeliest is a client's own
STEPS = 50  # of expectation-maximisation; more change the third digit
RIDGE = 1.0  # where the features' mean squared length is 1


def candidates(probs: Tensor, features: Tensor, labels: Tensor) -> dict[str, float]:
    """Every candidate by name; a client whose images all get the same probabilities has no `plain_slope`."""
    slope = label_slope(probs, labels)
    return {
        "images": float(len(labels)),
        **{f"plain_{name}": value for name, value in slope.items()},
        "plain_agreement": agreement(probs, labels),
        "certainty": certainty(probs),
        "credence": credence(probs, labels),
        "calibration_gap": calibration_gap(probs, labels),
        "confident_errors": confident_errors(probs, labels),
        "uniform_share": uniform_share(probs, labels),
        "left_out_agreement": left_out_agreement(probs, features, labels),
    }


def agreement(scores: Tensor, labels: Tensor) -> float:
    """mean [argmax p = y]: the share of labels that are predicted."""
    return (scores.argmax(dim=1) == labels).double().mean().item()


def certainty(probs: Tensor) -> float:
    """mean max p: the share of labels that the model says it predicts."""
    return probs.amax(dim=1).mean().item()


def calibration_gap(probs: Tensor, labels: Tensor) -> float:
    """certainty - agreement: how many fewer labels are predicted than the model says."""
    return certainty(probs) - agreement(probs, labels)


def credence(probs: Tensor, labels: Tensor) -> float:
    """mean p_y / mean sum_c p_c^2: the probability of labels over that of labels drawn as the model says."""
    return (probs.gather(1, labels.unsqueeze(1)).mean() / probs.square().sum(dim=1).mean()).item()


def confident_joint(probs: Tensor, labels: Tensor) -> Tensor:
    """Q (C, C): the share of images given i that are confidently of class j (Northcutt et al. 2021).

    Confidently j: p_j >= t_j, the mean of p_j over images given j, and p_j the largest such. Rows are scaled so that
    each sums to its class's share of the labels; one without a confident image is zero.
    """
    classes = probs.shape[1]
    hot = torch.eye(classes, dtype=torch.float64)[labels]
    given = hot.sum(dim=0)
    levels = torch.where(given > 0, (hot * probs).sum(dim=0) / given.clamp_min(1), torch.inf)
    passing = torch.where(probs >= levels, probs, -1.0)
    counted = hot * (passing.amax(dim=1, keepdim=True) >= 0)  # images that are confidently of some class
    table = counted.T @ torch.eye(classes, dtype=torch.float64)[passing.argmax(dim=1)]
    return table * (given / len(labels) / table.sum(dim=1).clamp_min(1)).unsqueeze(1)


def confident_errors(probs: Tensor, labels: Tensor) -> float:
    """sum of Q_ij over i != j: the share of labels that the confident joint says are wrong."""
    joint = confident_joint(probs, labels)
    return (joint.sum() - joint.trace()).item()


def uniform_share(probs: Tensor, labels: Tensor) -> float:
    """s (C - 1) / C, where (1 - s) softmax(b ln p)_y + s / C is the likeliest: labels of which s are drawn at random.

    s by expectation-maximisation for every temperature b; the likeliest of these counts.
    """
    classes = probs.shape[1]
    logs = torch.tensor(TEMPERATURES, dtype=torch.float64).view(-1, 1, 1) * probs.clamp_min(1e-12).log()
    own = logs.log_softmax(dim=2)[:, torch.arange(len(labels)), labels].exp()  # (temperatures, n)
    share = torch.full((len(TEMPERATURES), 1), 0.2, dtype=torch.float64)
    for _ in range(STEPS):
        random = share / classes
        share = (random / (random + (1 - share) * own)).mean(dim=1, keepdim=True).clamp(1e-4, 1 - 1e-4)
    likelihood = (share / classes + (1 - share) * own).log().mean(dim=1)
    return share[likelihood.argmax(), 0].item() * (classes - 1) / classes


def left_out_agreement(probs: Tensor, features: Tensor, labels: Tensor) -> float:
    """mean [argmax (q + r) = y]: q is p adapted to the class shares, r the ridge regression of [y] - q on features.

    Each image's r is of the other images: so what the client's own data say of its labels counts as well.
    """
    adapted = adapt_to_shares(side_by_side(probs.T, labels, torch.zeros_like(labels), [len(labels)])).probs[0].T
    hot = torch.eye(probs.shape[1], dtype=torch.float64)[labels]
    return agreement(adapted + left_out(scaled(features), hot - adapted), labels)


def scaled(features: Tensor) -> Tensor:
    """Features (n, d) around their mean, with a mean squared length of 1."""
    centred = features.flatten(1).double()
    centred = centred - centred.mean(dim=0)
    return centred / centred.square().sum(dim=1).mean().sqrt().clamp_min(1e-9)


def left_out(features: Tensor, targets: Tensor) -> Tensor:
    """(fit_i - h_i t_i) / (1 - h_i): what ridge regression with an intercept predicts of each row from all others.

    fit = H t with H = X (X'X + ridge)^-1 X' + 1/n for features X around their mean; h is H's diagonal.
    """
    count, width = features.shape
    if count <= width:
        gram = features @ features.T
        hat: Tensor = torch.linalg.solve(gram + RIDGE * torch.eye(count, dtype=torch.float64), gram)
        fit, own = hat @ targets, hat.diagonal()
    else:
        moments = features.T @ features + RIDGE * torch.eye(width, dtype=torch.float64)
        half: Tensor = torch.linalg.solve(moments, features.T)  # (d, n)
        fit, own = features @ (half @ targets), (features * half.T).sum(dim=1)
    own = (own + 1 / count).clamp_max(0.999).unsqueeze(1)
    return (fit + targets.mean(dim=0) - own * targets) / (1 - own)
