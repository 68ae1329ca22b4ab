"""The folder of a run on disk: where each file lies, who may write, and reading back what a run logged."""
