"""Jumps of the reward: the test for one, the prediction of gradients that it needs, and detectors."""
