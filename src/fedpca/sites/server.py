"""The server's half over any engine: what its settings ask for, a run or an audit."""

from __future__ import annotations

from pathlib import Path

from fedpca.settings.experiment import Experiment
from fedpca.sites.engine import Engine
from fedpca.sites.roster import Log
from fedpca.sites.settings import Deployment


def serve_deployment(engine: Engine, experiment: Experiment, deployment: Deployment, log: Log = print) -> Path:
    """Plays the run or the audit from where it stood, with the sites that join; the folder of its results."""
    if deployment.audit:
        from fedpca.sites.audit import serve_audit

        return serve_audit(engine, experiment, deployment, deployment.audit, log)
    from fedpca.sites.run import serve

    return serve(engine, experiment, deployment, log)
