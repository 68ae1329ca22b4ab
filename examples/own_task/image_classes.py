"""A task of your own, first file: what its option files say. A file names it under `plugins`; torch is not loaded."""

from typing import Any, Literal

from trainauto.options.fields import Component, NonNegativeInt, PositiveInt, Section, option
from trainauto.options.run_options import OF_STEPS, RunOptions, RunTraining
from trainauto.options.tasks import TaskOptions, register_task


class Images(Section):
    """Images by class."""

    folder: str = option(..., "Folder that has a folder of images for each class.")


class Training(RunTraining):
    """Batches and optimizer; length, schedule and clipping are those of every task."""

    batch_size: PositiveInt = option(32, "Images of a step at the start of the run.", unit="images")
    optim: Component = option(..., "Optimizer: AdamW, Adam or SGD with its arguments.")


class ClassifierOptions(RunOptions):
    """One training run of a classifier."""

    task: Literal["image_classes"] = option(..., "What is learned: the class of an image.")
    classes: list[str] = option(..., "Names of the classes, which are those of their folders.")
    image_size: PositiveInt = option(32, "Side that images are resized to.", unit="px")
    width: PositiveInt = option(32, "Channels of the network's first layer.", unit="channels")
    train_images: Images = option(..., "Images to train on.")
    val_images: Images = option(..., "Images to measure the accuracy on.")
    workers: NonNegativeInt = option(2, "Processes that read images; 0 reads in the training process.")
    train: Training = option(..., "Batches, optimizer, schedule, length.")
    val_freq: PositiveInt = option(100, "Steps between validations; one more runs at the end.", unit="optimizer steps")

    @property
    def loading(self) -> tuple[int, int]:
        """Processes that make samples, and batches that are drawn ahead of the step."""
        return self.workers, max(2, self.workers)

    def of_steps(self, world_size: int) -> dict[str, Any]:
        """Return the options that the memory of a step depends on."""
        del world_size
        of_network = {"task", "classes", "image_size", "width", *OF_STEPS}
        return self.model_dump(
            mode="json", include={**dict.fromkeys(of_network, True), "train": {"optim", "grad_clip"}}
        )


register_task(
    TaskOptions("image_classes", "classes of images", ClassifierOptions, Training, "image_classes_task:ImageClasses")
)
