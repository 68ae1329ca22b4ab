"""One module a command: its arguments, and what it does. What loads torch is imported when the command runs.

Each has ``add_to(commands)``, which adds its parser; :mod:`trainauto.cli` lists them in the order of the help.
"""
