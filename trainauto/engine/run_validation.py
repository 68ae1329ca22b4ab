"""What comes between steps: validations and what is decided upon them, ends of epochs, checkpoints."""

from collections.abc import Sequence
from dataclasses import replace

from trainauto.core.errors import Saving, have_saved, saving_before
from trainauto.core.process import without_memory_limit
from trainauto.core.records import ValidationRecord
from trainauto.engine.best import Best
from trainauto.engine.run import Run
from trainauto.engine.validation_room import lack_of_room
from trainauto.engine.validation_set import ValidationSet
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory


def validate_if_due(run: Run) -> bool:
    """Validate where that is due: after so many steps, after a pass over the samples, after the last step.

    Returns:
        Whether nothing of it is left to a resume, which then ends the pass, too.
    """
    if not run.is_validation_due:
        return True
    if run.finished or run.is_stopping:  # nothing follows: it may take long, and whoever stops the run may not wait
        run.save()
    return validate(run, run.validators)


def make_up(run: Run) -> None:
    """Do what a kill came before, after the last step: validate what was not validated yet, end an epoch."""
    if not run.missed or validate(run, run.missed):
        end_epoch(run)


def end_epoch(run: Run) -> bool:
    """End a pass over the training samples where that is due; say whether it was. An error says to save."""
    try:
        with without_memory_limit():
            return run.epochs.handle(run.progress)
    except Exception as error:
        have_saved(error, max(saving_before(error), Saving.ALONE))
        raise


def end_epoch_and_save_if_due(run: Run) -> None:
    """End a pass over the training samples, and write a checkpoint, where either is due."""
    has_ended = end_epoch(run)
    if run.is_due(run.frequencies.save) or (has_ended and run.frequencies.saves_epochs):
        run.save()


def validate(run: Run, validators: Sequence[ValidationSet]) -> bool:
    """Run validation sets. Whatever is wrong with one, every step so far is whole: an error says to save.

    Returns:
        Whether all were run to their end; a signal leaves them.

    Raises:
        TrainautoError: a set does not fit into memory.
    """
    try:
        are_whole = True
        for validator in validators:
            are_whole = _validate_set(run, validator)
            if not are_whole:
                break  # a signal: saving comes first
        release_memory(run.model.device)
    except Exception as error:
        ending = lack_of_room(run, validator, error) if is_out_of_memory(error) else error
        # Of several ranks only those that all have heard of it save.
        have_saved(ending, max(saving_before(error), Saving.ALONE))
        if ending is error:
            raise
        raise ending from None
    return are_whole


def _validate_set(run: Run, validator: ValidationSet) -> bool:
    """Run one set, and report it; say whether it was run to its end."""
    with run.meter.window() as window:  # no step is under way: windows of training begin and end with theirs
        result = validator.validate(run.model, run.progress.steps, run.ranks, run.signals)
    if result is None:
        return False
    record, pictures = replace(result[0], peak=window.reading), result[1]
    decisions = run.journal.ask(lambda automation: automation.on_validation_end(record))
    run.reporter.validation(record, pictures, run.journal.apply(decisions, run.trained_plan))
    # Before the next set, in which a signal or a kill may come; what was decided belongs to this step.
    if validator is run.validators[0]:
        _note_score(run, record)
    if run.is_saved:
        run.save()
    return True


def _note_score(run: Run, record: ValidationRecord) -> None:
    metric = run.frequencies.best_metric
    if metric is None:
        return
    measured_by = record.measured_by.get(metric, "")
    score = Best(record.step, record.metrics[metric], f"{record.dataset}/{metric}", measured_by)
    higher = record.better_is_higher[metric]
    if run.ranks.broadcast_object(lambda: run.checkpoints.note_score(score, better_is_higher=higher)):
        # The best is worth a checkpoint of its own, wherever the saving interval stands.
        run.save()
