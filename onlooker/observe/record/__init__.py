"""Recorders: what a trainer does, step by step, written to a log while it trains. It never changes the training."""
