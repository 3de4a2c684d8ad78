"""The one run that a server's settings describe, and what its sites must know of it."""

from __future__ import annotations

from collections.abc import Mapping

from fedpca.errors import SettingsError
from fedpca.methods.registry import METHODS, parse
from fedpca.runs.check import check_experiment, one_run, plan_of
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import validate
from fedpca.sites.settings import BOUNDS, Deployment
from fedpca.sites.task import Task

BY_LENGTH = ("clip", "max_share")  # bounds that compare the lengths of updates


def read_deployment(table: Mapping[str, object], source: str) -> tuple[Experiment, Deployment]:
    """The run in a table: keys of docs/settings.md with one method and one seed, and `[deploy]`.

    What one site can do to the model is bounded, unless `[aggregation]` says otherwise.
    """
    given = dict(table)
    deployment = validate(Deployment, given.pop("deploy", {}), source, ("deploy",))
    for key in ("methods", "seeds"):
        if key in given and not isinstance(given[key], list):
            given[key] = [given[key]]
    data = given.get("data", {})
    if isinstance(data, dict):
        given["data"] = {"clients": deployment.sites, "dataset": given.get("name", "sites"), **data}
    aggregation = given.get("aggregation", {})
    if isinstance(aggregation, dict):
        given["aggregation"] = {**_bounds(given.get("privacy")), **aggregation}
    experiment = check_experiment({"seeds": [0], **given}, source)
    _refuse_simulation(experiment, source)
    if "privacy" not in deployment.model_fields_set:
        deployment = deployment.model_copy(update={"privacy": experiment.privacy.reports})
    return one_run(experiment, experiment.methods[0], experiment.seeds[0]), deployment


def _bounds(privacy: object) -> dict[str, float]:
    """A deployment's own bounds; `privacy.central` bounds lengths itself, whatever the others' are."""
    central = privacy.get("central") if isinstance(privacy, Mapping) else None
    return {key: bound for key, bound in BOUNDS.items() if key not in BY_LENGTH or not central}


def _refuse_simulation(experiment: Experiment, source: str) -> None:
    """Refuses what is not a single run on the sites' own data."""
    for key, values in (("methods", experiment.methods), ("seeds", experiment.seeds)):
        if len(values) != 1:
            raise SettingsError(f"{source}: {key}: a deployment is one run, got {list(values)}: choose one")
    if experiment.rare.share or experiment.noise.injects:
        raise SettingsError(
            f"{source}: rare and noise make up sites for a simulation; real ones have data: leave them out"
        )
    for name in experiment.methods:
        for part in (METHODS[own] for own in parse(name).simple):
            if part.alone:
                raise SettingsError(f"{source}: methods: {part.name} {part.alone}, so it is for simulations only")
    if experiment.attack.is_on:
        raise SettingsError(f"{source}: attack makes up liars for a simulation: leave it out")
    if experiment.data.corrected_labels:
        raise SettingsError(
            f"{source}: data.corrected_labels: real sites keep their own corrections: each sets corrected_labels"
        )
    if experiment.model.backbone or experiment.evaluation.on != "test":
        raise SettingsError(f"{source}: model.backbone and evaluation.on are for simulations: leave them out")


def task_of(run: Experiment) -> Task:
    """What the sites of a run do."""
    return Task(
        method=run.methods[0],
        tables=run.method,
        plan=plan_of(run),
        accuracy=run.evaluation.accuracy,
        data=run.data,
        model=run.model,
    )
