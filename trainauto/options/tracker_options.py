"""Experiment trackers that a run logs to: keys of the section ``logger`` of every option file."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from trainauto.options.fields import FolderName, Section, option

ExperimentName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]


class WandbOptions(Section):
    """Weights & Biases; needs `pip install 'trainauto[wandb]'`."""

    project: FolderName | None = option(
        ..., "Project that the run belongs to. null disables the tracker, as in BasicSR's files."
    )
    mode: Literal["offline", "online"] = option(
        "offline",
        "`online` uploads while the run trains, after `wandb login`. `offline` writes to the folder wandb beside "
        "the runs; `wandb sync` uploads it.",
        reason="nothing leaves the machine unless the file says so",
    )


class MlflowOptions(Section):
    """MLflow; needs `pip install 'trainauto[mlflow]'`."""

    experiment: ExperimentName = option(..., "Experiment that the run belongs to. It is created if it does not exist.")
    tracking_uri: str | None = option(
        None,
        "Address of a tracking server (http://..., databricks) or of a database (sqlite:///FILE).",
        reason="null: mlflow.db beside the runs; nothing leaves the machine unless the file says so",
    )


class TrackioOptions(Section):
    """trackio; needs `pip install 'trainauto[trackio]'`."""

    project: FolderName = option(..., "Project that the run belongs to.")
    server: str | None = option(
        None,
        "A Hugging Face Space (USER/NAME), or the address of a trackio server (https://...).",
        reason="null: trackio's own folder; nothing leaves the machine unless the file says so",
    )


class TrackerOptions(Section):
    """Experiment trackers. Each logs from its own thread, which never slows or ends a run."""

    wandb: WandbOptions | None = option(
        None, "Log the run to Weights & Biases, e.g. `{project: NAME}`.", reason="null: off"
    )
    mlflow: MlflowOptions | None = option(None, "Log the run to MLflow, e.g. `{experiment: NAME}`.", reason="null: off")
    trackio: TrackioOptions | None = option(None, "Log the run to trackio, e.g. `{project: NAME}`.", reason="null: off")


TRACKERS = tuple(TrackerOptions.model_fields)
"""Keys of the trackers."""
