"""The server of an NVFlare job that has an exchange whenever it is asked, in place of a run."""

from __future__ import annotations

from benchmarks.turns import answer_turns
from fedpca.nvflare.apps import FedPCAServer
from fedpca.nvflare.engine import NVFlareEngine
from fedpca.settings.experiment import Experiment
from fedpca.sites.settings import Deployment


class TurnServer(FedPCAServer):
    """Plays turns; the files that ask for them are in `deploy.out`."""

    def serve(self, engine: NVFlareEngine, experiment: Experiment, deployment: Deployment) -> None:
        """Every exchange that is asked for."""
        answer_turns(deployment.out, engine, experiment, deployment)
