"""Ranks labels by cleanlab on all clients' data together: `python -m benchmarks.peers.cleanlab OUT`.

Reads what `python -m studies.audit OUT` wrote: features, given labels, which of these are wrong. Predictions are out of
sample, by cross-validation over images, as cleanlab's manual has it: by a network as large as the audit's, trained for
as many epochs, and by logistic regression. The better of both counts. It runs in an environment of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from cleanlab.rank import get_label_quality_scores
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FOLDS, EPOCHS, HIDDEN, BATCH = 5, 20, 16, 64
MODELS = {
    "network": MLPClassifier((HIDDEN,), alpha=5e-4, batch_size=BATCH, max_iter=EPOCHS, random_state=0),
    "logistic": LogisticRegression(C=0.001, max_iter=100),
}


def aurocs(x: NDArray[np.float32], y: NDArray[np.int64], wrong: NDArray[np.bool_]) -> dict[str, float]:
    """How well cleanlab's scores rank wrong labels before right ones, by model."""
    found = {}
    for name, model in MODELS.items():
        probs = cross_val_predict(make_pipeline(StandardScaler(), model), x, y, cv=FOLDS, method="predict_proba")
        found[name] = float(roc_auc_score(wrong, 1 - get_label_quality_scores(y, probs)))
    return found


def main(out: Path) -> None:
    for path in sorted(out.glob("*.npz")):
        target = path.with_suffix(".cleanlab.json")
        if target.exists():
            continue
        with np.load(path) as arrays:
            y, wrong, features = arrays["y"], arrays["wrong"], str(arrays["features"])
        found = aurocs(np.load(out / features), y, wrong)
        target.write_text(json.dumps({"auroc": max(found.values()), **found}))
        print(path.stem, found, flush=True)


if __name__ == "__main__":
    import warnings

    warnings.filterwarnings("ignore", message="Stochastic Optimizer")  # it is stopped after as many epochs on purpose
    main(Path(sys.argv[1]))
