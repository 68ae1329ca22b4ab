"""What a plan costs in bytes, with quantiles: from traces before a run, corrected by what was measured."""
