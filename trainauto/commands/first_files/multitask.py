"""The first option file of several tasks: handwritten digits that ship with scikit-learn."""

import shlex

from trainauto.commands.first_files.machine import Machine
from trainauto.commands.first_files.writing import FirstFile, scalar


def multitask_file(name: str, machine: Machine) -> FirstFile:
    """Return an option file that trains one model on three tasks."""
    summary = "One model learns three tasks on scikit-learn's handwritten digits: which digit, how it was turned, sums."
    about = (
        "Samples and a model of your own: `plugins: [my_tasks]` imports my_tasks.py beside this file, which registers",
        "them (SAMPLE_SETS and MULTITASK_MODELS of trainauto.tasks.multitask.registry). Name them at `type` below.",
    )
    commands = [
        ("doctor -opt {opt}", "is this machine fit for it?"),
        ("train -opt {opt}", "Ctrl-C stops it and saves; --auto_resume resumes"),
        (f"report {shlex.quote(f'experiments/{name}')} --serve --open", "its page, live"),
    ]
    packages = ("transformers", "accelerate", "matplotlib")
    return FirstFile("multitask", summary, about, _body(name, machine), commands, extra="multitask", packages=packages)


def _body(name: str, machine: Machine) -> str:
    budget = "" if machine.card else "  cpu_budget: 64MiB\t# what steps may add to the process, enforced on Linux\n"
    return f"""name: {scalar(name)}\t# runs go to experiments/{name}
task: multitask

model: {{ type: DigitsModel, hidden_size: 64, layers: 2, heads: 4 }}

tokenizer:
  train: {{ vocab_size: 320 }}\t# tokens; it learns them from the questions

datasets:
  train: {{ type: DigitTasks, samples: 9000, shares: {{ T1: 0.4, T2: 0.3, T3: 0.3 }} }}
  val: {{ type: DigitTasks, samples: 1500, part: test }}\t# pictures that are not trained on

train:
  total_epochs: 10\t# times that each sample is trained
  learning_rate: 2.0e-3
  weight_decay: 0.1
  scheduler: {{ type: cosine }}
  warmup_ratio: 0.05\t# share of the run in which the rate rises
  grad_clip: 1.0\t# largest gradient norm
  base_batch_size: 16\t# samples of a pass at the start; the controller goes on from there
  target_batch_size: 64\t# samples of a step, in as many passes as memory asks for
  use_grad_norm_balancing: true\t# tasks learn at one pace

logger:
  print_freq: 100\t# steps between lines on the console
  save_checkpoint_freq: 500\t# steps between checkpoints; a resume begins at the last one

memory:\t# passes follow it by themselves
{budget}  margin: 0.10\t# share of the memory that batches leave free
"""
