"""The first option file of super-resolution: a folder of images, some of which are set aside to validate on."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainauto.commands.first_files.machine import Machine
from trainauto.commands.first_files.writing import CONTROLLER, GOODPUT, LIMIT, TARGET, FirstFile, roots, scalar
from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted, visible
from trainauto.tasks.sr.data.image_files import list_images
from trainauto.tasks.sr.data.image_io import image_size_px
from trainauto.tasks.sr.data.image_source import is_database

PHOTOGRAPHS = tuple(f"package:skimage/data/{name}" for name in ("astronaut.png", "coins.png", "hubble_deep_field.jpg"))
PHOTOGRAPHS += tuple(f"package:skimage/data/{name}" for name in ("motorcycle_left.png", "rocket.jpg", "retina.jpg"))
PHOTOGRAPHS += ("package:sklearn/datasets/images/china.jpg",)
PHOTOGRAPHS_ASIDE = ("package:skimage/data/coffee.png", "package:sklearn/datasets/images/flower.jpg")
"""Photographs that ship with packages which are installed anyway; the scenes of these and those are different ones."""

DEFAULT_SCALE = 4

MOST_ASIDE = 4
ONE_IN = 10
"""Of so many images one is set aside, up to ``MOST_ASIDE``: validating on many takes long, and teaches nothing."""

LEAST_SIDE_PX = 64
"""Of an image to validate on: SSIM looks at 11 px at a time, beside the edge that is left out."""

SHOWN = 3

_Looked = tuple[str, str, tuple[int, int]]
"""Name, path and (height, width) of an image."""


@dataclass(frozen=True)
class Images:
    """What is trained on, and what is validated on.

    Attributes:
        train: value of ``dataroot_gt``.
        train_names: of the images to train on, below that folder; empty for all of them.
        val: value of ``dataroot_gt`` of the validation set.
        summary: what was chosen, in a line.
        said: the same, for a comment.
        largest_px: shorter side of the image to train on that holds the largest crop; ``None`` where it is not known.
    """

    train: str | Sequence[str]
    train_names: Sequence[str]
    val: str | Sequence[str]
    summary: str
    said: Sequence[str]
    largest_px: int | None = None


def chosen_images(folder: str | None, val: str | None) -> Images:
    """Look at the images of a folder, and choose those to validate on where no folder of them is given.

    Raises:
        InputError: there is no such folder, it has too few images, or some of them cannot be read.
    """
    if folder is None:
        own = f"{counted(len(PHOTOGRAPHS), 'photograph')} that ship with scikit-image and scikit-learn"
        return Images(PHOTOGRAPHS, (), PHOTOGRAPHS_ASIDE, own, ("Photographs that are not trained on.",))
    if not folder:
        raise InputError(Problem("--images names no folder", advice="Write . for this one."))
    train = _looked_at(folder, "images")
    count = counted(len(train), "image")
    if val is not None:
        aside = _looked_at(val, "val")
        _check_apart(train, aside, folder, val)
        summary = f"{count} of {folder}, validated on {len(aside)} of {val}"
        return Images(folder, (), val, summary, (), max(min(sides) for _, _, sides in train))
    if is_database(Path(folder)):
        message = f"{folder} is a database, of which no images can be set aside"
        raise InputError(Problem(message, advice="Name images to validate on with --val FOLDER."))
    places = _places_aside([min(sides) for _, _, sides in train])
    if not places or len(train) < 2:
        message = f"{folder} has {count}, and none to spare for validation"
        advice = f"Add images of {LEAST_SIDE_PX} px and more on each side, or name others with --val FOLDER."
        raise InputError(Problem(message, advice=advice))
    aside_paths = [train[place][1] for place in places]
    names = [name for place, (name, _, _) in enumerate(train) if place not in places]
    if unlisted := [name for name in names if name != name.strip() or len(name.splitlines()) != 1]:
        message = f"{folder}/{unlisted[0]!r} cannot stand in a list of images, with a space or a line break in its name"
        raise InputError(Problem(message, advice="Rename it, or name images to validate on with --val FOLDER."))
    summary = f"{counted(len(names), 'image')} of {folder}, validated on {counted(len(places), 'other')}"
    said = (f"Set aside from {visible(folder)}, and never trained on. A folder of others may stand here instead.",)
    largest_px = max(min(sides) for place, (_, _, sides) in enumerate(train) if place not in places)
    return Images(folder, names, aside_paths, summary, said, largest_px)


def _check_apart(train: Sequence[_Looked], aside: Sequence[_Looked], folder: str, val: str) -> None:
    """Refuse images that would be trained on and validated on.

    Raises:
        InputError: a file is in both folders.
    """
    places = {os.path.realpath(path) for _, path, _ in train}
    both = [name for name, path, _ in aside if os.path.realpath(path) in places]
    if both:
        more = f", and {len(both) - SHOWN} more" if len(both) > SHOWN else ""
        message = f"{counted(len(both), 'image')} of {val} would be trained on, too: {', '.join(both[:SHOWN])}{more}"
        raise InputError(Problem(message, advice=f"Move them out of {folder}, or leave --val out."))


def _looked_at(folder: str, argument: str) -> list[_Looked]:
    """Return name, path and (height, width) of each image of a folder, in order.

    Raises:
        InputError: as for :func:`chosen_images`.
    """
    images, wrong = [], []
    for file in list_images(folder, set_name=argument):
        try:
            images.append((file.path_below_root, file.path, image_size_px(file.path)))
        except InputError as error:
            wrong.append(error.problems[0].message)
    if wrong:
        more = f", and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        message = f"{counted(len(wrong), 'image')} of {folder} cannot be read: {', '.join(wrong[:SHOWN])}{more}"
        raise InputError(Problem(message, advice="Remove them, or copy them again."))
    return images


def _places_aside(sides_px: Sequence[int]) -> list[int]:
    """Return which images to set aside: evenly spaced among those that are large enough."""
    large = [place for place, side in enumerate(sides_px) if side >= LEAST_SIDE_PX]
    count = min(MOST_ASIDE, max(1, len(sides_px) // ONE_IN), len(large))
    return [large[(2 * number + 1) * len(large) // (2 * count)] for number in range(count)]


def super_resolution_file(name: str, images: Images, scale: int, machine: Machine) -> FirstFile:
    """Return an option file that trains x``scale`` enlargement."""
    list_name = f"{name}_train.txt"
    lists = {list_name: "".join(f"{image}\n" for image in images.train_names)} if images.train_names else {}
    about = [
        "Low-quality images are made from these by shrinking. In place of GTImageDataset, PairedImageDataset takes",
        "low-quality partners that you have, and RealESRGANDataset blurs, adds noise and compresses at random.",
    ]
    commands = [
        ("doctor -opt {opt}", "is this machine fit for it?"),
        ("plan -opt {opt}", "which crops and batches fit on which card"),
        ("train -opt {opt}", "Ctrl-C stops it and saves; --auto_resume resumes"),
        (f"report {shlex.quote(f'experiments/{name}')} --serve --open", "its page, live"),
    ]
    sets = _train_set(images, list_name, scale, machine) + _val_set(images)
    body = _begin(name, scale, machine) + sets + (_on_card(scale) if machine.card else _on_cpu(scale))
    summary = f"Super-resolution x{scale}: {images.summary}."
    return FirstFile("super_resolution", summary, about, body, commands, lists)


def _begin(name: str, scale: int, machine: Machine) -> str:
    amp = "use_amp: true\t# computes in bfloat16, which cards have from Ampere on\n" if machine.has_bfloat16 else ""
    return f"""name: {scalar(name)}\t# runs go to experiments/{name}
scale: {scale}\t# times larger that pictures become
{amp}
"""


def _train_set(images: Images, list_name: str, scale: int, machine: Machine) -> str:
    root = roots(images.train, "high-quality images, with subfolders")
    of_list = f"    meta_info: {scalar(list_name)}\t# those to train on; list here what you add to the folder\n"
    lq_size, batch, workers = (64, 8, machine.workers) if machine.card else (32, 4, 0)
    if images.largest_px is not None:  # a crop that no image holds is refused
        lq_size = min(lq_size, max(1, images.largest_px // scale // 4 * 4))
    why = "processes that decode images" if machine.card else "processes that decode; the network needs the cores"
    return f"""datasets:
  train:
    type: GTImageDataset\t# makes the low-quality crops itself, by antialiased bicubic
    dataroot_gt:{root}
{of_list if images.train_names else ""}    lq_size: {lq_size}\t# px, side of a low-quality crop at the start
    batch_size_per_gpu: {batch}\t# crops of a step at the start; the controller goes on from there
    num_worker_per_gpu: {workers}\t# {why}
"""


def _val_set(images: Images) -> str:
    said = "".join(f"    # {line}\n" for line in images.said)
    root = roots(images.val, "never trained on")
    return f"""  val:
    type: GTImageDataset
{said}    dataroot_gt:{root}

"""


def _on_cpu(scale: int) -> str:
    return f"""network_g:
  type: compact\t# a small network; `list archs` shows the others
  num_feat: 32\t# channels
  num_conv: 8\t# layers

train:
  total_iter: 5000\t# steps; some 5 minutes on two cores
  losses:
    - type: l1loss
  optim_g: {{ type: AdamW, lr: 1e-3, betas: [0.9, 0.99] }}
  scheduler: {{ type: cosine, end_factor: 0.02 }}\t# the rate falls to 2 % of it
  warmup_ratio: 0.05\t# share of the run in which it rises
  ema_decay: 0.99\t# validates and saves weights averaged over some 100 steps

{_validation(scale, 1000)}
memory:
  cpu_budget: 128MiB\t# what steps may add to the process, enforced on Linux; larger batches need more
training_automations:
  DynamicBatchSizeOptimizer:\t# {CONTROLLER}
    objective: goodput\t# {GOODPUT}
    target_vram_usage: 0.85\t# {LIMIT}
    adjustment_frequency: 50\t# steps between its decisions
    max_batch_size: 64\t# crops
"""


def _on_card(scale: int) -> str:
    return f"""network_g:
  type: rrdbnet\t# ESRGAN's network; compact, span and swinir_light are lighter
  num_block: 6\t# of 23 that ESRGAN has

train:
  total_iter: 100000\t# steps
  losses:
    - type: l1loss
  optim_g: {{ type: AdamW, lr: 1e-4, betas: [0.9, 0.99] }}
  scheduler: {{ type: multistep, milestones: [50000, 80000], gamma: 0.5 }}\t# the rate is halved at these steps

{_validation(scale, 1000)}
training_automations:
  DynamicBatchSizeOptimizer:\t# {CONTROLLER}
    target_vram_usage: 0.85\t# {TARGET}
    safety_margin: 0.05\t# from 80 % to 85 % nothing is changed
    adjustment_frequency: 100\t# steps between its decisions
"""


def _validation(scale: int, frequency: int) -> str:
    return f"""val:
  val_freq: {frequency}\t# steps between validations
  metrics:\t# bicubic enlargement is measured beside the network
    psnr_y: {{ type: calculate_psnr, crop_border: {scale}, test_y_channel: true }}
    ssim_y: {{ type: calculate_ssim, crop_border: {scale}, test_y_channel: true }}

logger:
  print_freq: 50\t# steps between lines on the console
  save_checkpoint_freq: {frequency}\t# steps between checkpoints; a resume begins at the last one
"""
