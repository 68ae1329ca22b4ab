"""The sets that a resumed run has: those that it began with, as far as their files are there."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.core.json_text import read_object
from trainauto.core.words import counted
from trainauto.data import DynamicDataset
from trainauto.data.dynamic_dataset import ACCEPT
from trainauto.data.sample_files import Kept, SampleFiles, SetChanges
from trainauto.storage.kept_sets import earlier_identities, kept_files
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_metadata import names_sha256

logger = logging.getLogger(__name__)


@dataclass
class KeptSets:
    """Which files the sets of a run are to have.

    Attributes:
        directory: the run that is resumed or repeated; ``None`` takes what is there.
        accepts: take what is there all the same, and begin an epoch with it.
        until: step up to which it is repeated; ``None`` for a resume.
        accepted: what was taken all the same of the training set, in words.
    """

    directory: RunDirectory | None = None
    accepts: bool = False
    until: int | None = None
    accepted: list[str] = field(default_factory=list)

    @property
    def _file(self) -> Path | None:
        if self.directory is None:
            return None
        return (
            self.directory.samples if self.until is None else self.directory.kept_at(self.directory.samples, self.until)
        )

    def train_set(self, name: str, build: Callable[[Kept | None], DynamicDataset]) -> DynamicDataset:
        """Return the training set.

        Args:
            name: of the set.
            build: builds it of these files, or where not all of them are there, of those that are.

        Raises:
            InputError: files that the run began with are gone, and the new set was not accepted; names them.
        """
        if self._file is None or self.directory is None:
            return build(None)
        kept = kept_files(self._file)
        if self.accepts:
            return self._as_it_is(build(None), kept)
        dataset = build(Kept(kept))
        if kept is None and self.until is None and dataset.sample_files() is not None:
            self._check_number(dataset)
        changes = self._changes(dataset)
        if changes.has_gone:
            what = f"dataset '{name}' is not what the run began with"
            listed = "".join(f"\n  {words}" for words in changes.words())
            raise InputError(Problem(f"{what}{listed}", advice=_advice(changes, repeats=self.until is not None)))
        _say(name, changes)
        return dataset

    def validation_set(self, name: str, build: Callable[[Kept | None], DynamicDataset]) -> DynamicDataset:
        """Return a validation set; where files are gone, those that are there are taken, and it is said."""
        if self._file is None or self.accepts:
            return build(None)
        kept = kept_files(self._file, name)
        # A set that is new to a run which keeps lists has no list.
        dataset = build(Kept(kept) if kept is not None or not self._file.is_file() else None)
        changes = self._changes(dataset)
        if changes.has_gone:
            listed = "; ".join(changes.words())
            logger.warning("dataset '%s' has changed, so scores before and after do not compare: %s", name, listed)
        else:
            _say(name, changes)
        return dataset

    def _changes(self, dataset: DynamicDataset) -> SetChanges:
        """Return how a set has changed; what is new has no part in a repetition."""
        changes = dataset.changes
        return changes if self.until is None else replace(changes, added=(), newly_readable=())

    def accepted_identities(self) -> frozenset[str]:
        """Return the identities of the training samples that the run has had: others were accepted since."""
        if self.directory is None or self.until is not None:
            return frozenset()
        return earlier_identities(self.directory)

    def _as_it_is(self, dataset: DynamicDataset, kept: SampleFiles | None) -> DynamicDataset:
        now = dataset.sample_files()
        changes = SetChanges.between(kept, now) if kept is not None and now is not None else SetChanges()
        self.accepted += [f"dataset '{dataset.name}': {words}" for words in changes.words()]
        return dataset

    def _check_number(self, dataset: DynamicDataset) -> None:
        """Look at what versions noted that kept no list: how many samples there were, and a digest of their names.

        Raises:
            InputError: there is another number of them.
        """
        origin = read_object(self.directory.origin) if self.directory is not None else {}
        if origin.get("names_sha256") in (None, names_sha256(dataset)):
            return
        if origin.get("samples") != len(dataset):
            samples = counted(len(dataset), "sample")
            what = f"dataset '{dataset.name}' has {samples}, the run began with {origin.get('samples')}"
            raise InputError(Problem(what, advice=dataset.if_changed))
        logger.warning(
            "dataset '%s' has other names than when the run began, under a version that noted no list of them: samples "
            "that were trained in this epoch may come again, others not at all. %s begins an epoch.",
            dataset.name,
            ACCEPT,
        )


def _say(name: str, changes: SetChanges) -> None:
    words = changes.words()
    if words:
        left_out = changes.added or changes.newly_readable
        more = f" What is new is left out: {ACCEPT} takes it, and begins an epoch." if left_out else ""
        logger.warning(
            "dataset '%s' continues with the files that the run began with. %s.%s", name, "; ".join(words), more
        )


def _advice(changes: SetChanges, *, repeats: bool) -> str:
    back = "Name them as they were" if changes.renamed and not changes.removed else "Put them back"
    if repeats:
        return f"{back}, or name the same images with --force_yml datasets:train:dataroot_gt=FOLDER."
    return f"{back}, or resume with {ACCEPT}: the run takes what is there, and begins an epoch with it."
