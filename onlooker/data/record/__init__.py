"""Recorders, which write the steps of a training loop to a log; one file per framework."""
