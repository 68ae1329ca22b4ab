"""How the controller chooses plans from measured and predicted peaks: policies, planners, what it remembers."""
